// SPDX-License-Identifier: Apache-2.0

// Command cmd is `make kernels`: it runs the guest program on this kernel and
// inside Debian's older ones, prints their ladders side by side, tries the command
// line here with rights missing, and writes build/results/kernels.json. With
// arguments it runs another static program in each of the older kernels instead and
// prints its output:
//
//	go run ./tests/kernels/cmd [-series 6.1] [program [argument ...]]
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"

	"github.com/velo-agent/velo-agent/tests/kernels"
	"github.com/velo-agent/velo-agent/tests/kernels/rights"
	"github.com/velo-agent/velo-agent/tests/results"
)

const (
	cache   = "build/kernels"
	guest   = "github.com/velo-agent/velo-agent/tests/kernels/guest"
	command = "github.com/velo-agent/velo-agent/cmd/velo-agent"
)

func main() {
	series := flag.String("series", "", "only the kernel of this series, such as 6.1")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := 0
	if flag.NArg() > 0 {
		code = runOther(ctx, *series, flag.Args())
	} else {
		code = measure(ctx, *series)
	}
	stop()
	os.Exit(code)
}

// measure runs the guest program on each kernel, and the rights here.
func measure(ctx context.Context, series string) int {
	run := results.New("kernels")
	if err := fill(ctx, run, series); err != nil {
		run.Fail(err.Error())
	}
	return run.Finish(os.Stdout, "build/results")
}

func fill(ctx context.Context, run *results.Run, series string) error {
	dir, err := os.MkdirTemp("", "velo-kernels-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // other users run what is in it
		return err
	}
	bin, err := kernels.Build(ctx, dir, guest)
	if err != nil {
		return err
	}
	agent, err := kernels.Build(ctx, dir, command)
	if err != nil {
		return err
	}
	var columns []column
	if series == "" {
		fmt.Println("measuring here …")
		columns = append(columns, here(ctx, bin))
	}
	list, fetchErr := kernels.Fetch(ctx, cache)
	for _, k := range list {
		if series == "" || k.Series == series {
			fmt.Printf("booting %s …\n", k.Release)
			columns = append(columns, inside(ctx, k, bin))
		}
	}
	printRungs(os.Stdout, columns)
	for _, c := range columns {
		record(run, c)
	}
	if series == "" {
		fmt.Println("trying the command line with rights missing …")
		run.Cases = append(run.Cases, rights.Cases(ctx, agent, time.Second)...)
	}
	return fetchErr
}

// here runs the guest program on this machine's own kernel.
func here(ctx context.Context, bin string) column {
	c := column{name: "here"}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, bin)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	c.lines, c.err = kernels.Lines(string(out))
	if err != nil {
		c.err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return c
}

func inside(ctx context.Context, k kernels.Kernel, bin string) column {
	c := column{name: k.Series}
	out, code, err := kernels.Run(ctx, k, kernels.Guest{Binary: bin})
	c.lines, c.err = kernels.Lines(out.Stdout)
	if err == nil && code != 0 {
		err = fmt.Errorf("the program ended with %d: %s", code, strings.TrimSpace(out.Stderr))
	}
	if err != nil {
		c.err = err
	}
	fmt.Printf("%s: program started after %v, ran %v\n", k.Release, out.Boot.Round(100*time.Millisecond), out.Ran.Round(100*time.Millisecond))
	return c
}

// runOther runs any static program in the kernels and passes its output on; the
// exit code is the last one that is not 0.
func runOther(ctx context.Context, series string, args []string) int {
	list, err := kernels.Fetch(ctx, cache)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	last := 0
	for _, k := range list {
		if series != "" && k.Series != series {
			continue
		}
		out, code, err := kernels.Run(ctx, k, kernels.Guest{Binary: args[0], Args: args[1:]})
		fmt.Printf("--- %s\n%s", k.Release, out.Stdout)
		fmt.Fprint(os.Stderr, out.Stderr)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 2
		}
		if code != 0 {
			last = code
		}
	}
	return last
}
