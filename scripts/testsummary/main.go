// SPDX-License-Identifier: Apache-2.0

// Command testsummary reads the events of `go test -json`, from files or from
// standard input, and says what failed, what was skipped and why, and how many
// tests there were:
//
//	testsummary [-live NAME] [-allowed FILE] [FILE.json ...]
//	testsummary -measured [-allowed FILE] FILE.json ...
//
// With -measured the files are those that measuring targets write.
//
// It exits with 1 where a test failed, or where one was skipped for a reason that
// the file of allowed reasons does not hold, and with 2 for wrong usage.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	live := flag.String("live", "", "print each package as it ends, under this `name`")
	allowed := flag.String("allowed", "", "fail for a skip whose reason matches no line of this `file`")
	measured := flag.Bool("measured", false, "the files are results of measuring targets")
	flag.Parse()
	code, err := run(options{*live, *allowed, *measured}, flag.Args(), os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsummary:", err)
		code = 2
	}
	os.Exit(code)
}

type options struct {
	live, allowed string
	measured      bool
}

func run(o options, files []string, stdin io.Reader, out io.Writer) (int, error) {
	s := summary{tests: map[key]*test{}}
	if o.live != "" {
		s.live = out
	}
	var reasons []reason
	if o.allowed != "" {
		var err error
		if reasons, err = readReasons(o.allowed); err != nil {
			return 0, err
		}
	}
	for _, name := range files {
		if o.measured {
			if err := s.readMeasured(name); err != nil {
				return 0, err
			}
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			return 0, fmt.Errorf("opening the events: %w", err)
		}
		err = s.read(bufio.NewReader(f))
		f.Close()
		if err != nil {
			return 0, fmt.Errorf("reading %s: %w", name, err)
		}
	}
	if len(files) == 0 {
		if err := s.read(bufio.NewReader(stdin)); err != nil {
			return 0, fmt.Errorf("reading the events: %w", err)
		}
	}
	name := o.live
	switch {
	case o.measured:
		name = "measured cases"
	case name == "":
		name = "all tests"
	}
	return s.print(out, name, o.allowed != "", reasons), nil
}
