// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// asProgram makes this test's binary the program itself.
const asProgram = "VELO_AGENT_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(run(context.Background(), os.Args))
	}
	goleak.VerifyTestMain(m)
}

type outcome struct {
	code           int
	stdout, stderr string
}

// program runs the program; stdout may be nil, and is then returned.
func program(t *testing.T, stdout io.Writer, args ...string) outcome {
	t.Helper()
	return fed(t, nil, stdout, args...)
}

// fed is program with standard input.
func fed(t *testing.T, stdin io.Reader, stdout io.Writer, args ...string) outcome {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "LC_ALL=C.UTF-8")
	cmd.Stdin = stdin
	var out, errText bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errText
	if stdout != nil {
		cmd.Stdout = stdout
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), out.String(), errText.String()}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

func TestWrongUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"diagnose", "--prt", "80"}, exitUsage, "prt"},
		{[]string{"--prt"}, exitUsage, "prt"},
		{[]string{"diagnoze"}, exitUsage, `no such verb: "diagnoze"`},
		{[]string{"diagnoze"}, exitUsage, `did you mean "diagnose"?`},
		{[]string{"diagnose", "--prt", "80"}, exitUsage, "did you mean --port?"},
		{[]string{"diagnose", "--port", "eighty"}, exitUsage, "eighty"},
		{[]string{"diagnose", "--port", "0"}, exitUsage, "a TCP port is a number from 1 to 65535"},
		{[]string{"diagnose", "--port", "65536"}, exitUsage, "65536"},
		{[]string{"diagnose", "--port", "-1"}, exitUsage, "-1"},
		{[]string{"diagnose", "--pid", "0"}, exitUsage, "--pid 0"},
		{[]string{"diagnose", "--for", "0s"}, exitUsage, "like 30s"},
		{[]string{"diagnose", "--for", "ten"}, exitUsage, "ten"},
		{[]string{"diagnose", "--for", "25h"}, exitUsage, "24h"},
		{[]string{"diagnose", "--json", "--markdown"}, exitUsage, "exclude each other"},
		{[]string{"diagnose", "8000"}, exitUsage, "did you mean --port 8000?"},
		{[]string{"diagnose", "--content", "all"}, exitUsage, "say head or none"},
		{[]string{"diagnose", "--accept", "all"}, exitUsage, "say exact or cheap"},
		{[]string{"diagnose", "--color", "green"}, exitUsage, "say auto, always or never"},
		{[]string{"probes", "now"}, exitUsage, "flags only"},
		{[]string{"completion", "fish"}, exitUsage, `no such verb: "fish"`},
		{[]string{"completion", "bash", "--json"}, exitUsage, "no such flag: --json"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			got := program(t, nil, c.args...)
			if got.code != c.code || !strings.Contains(got.stderr, c.says) {
				t.Errorf("ended with %d and said %q, want %d and %q", got.code, got.stderr, c.code, c.says)
			}
			if strings.Count(got.stderr, "\n") != 1 || !strings.HasPrefix(got.stderr, "velo-agent: ") {
				t.Errorf("a script wants one sentence on standard error, not %q", got.stderr)
			}
			if got.stdout != "" {
				t.Errorf("standard output holds %q", got.stdout)
			}
		})
	}
}

func TestNotThere(t *testing.T) {
	for _, c := range []struct{ flag, value, says string }{
		{"--port", freePort(t), "nothing listens on TCP port"},
		{"--pid", strconv.Itoa(os.Getpid()), "listens on no TCP port"},
		{"--cgroup", "/no/such", "/no/such"},
	} {
		got := program(t, nil, "diagnose", c.flag, c.value, "--for", "1s")
		if got.code != exitNotThere || !strings.Contains(got.stderr, c.says) || !strings.Contains(got.stderr, c.value) {
			t.Errorf("%s %s: ended with %d and said %q", c.flag, c.value, got.code, got.stderr)
		}
	}
}

func TestHelp(t *testing.T) {
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"--help"}, []string{"diagnose", "probes", "version", "completion", "Start with: velo-agent diagnose"}},
		{nil, []string{"Start with: velo-agent diagnose"}},
		{[]string{"diagnose", "--help"}, []string{"velo-agent diagnose --for 30s", "--port", "Exit codes: 0"}},
		{[]string{"probes", "--help"}, []string{"velo-agent probes", "Exit codes: 0"}},
		{[]string{"version", "--help"}, []string{"velo-agent version", "--json"}},
		{[]string{"completion", "--help"}, []string{"source <(velo-agent completion bash)"}},
	} {
		got := program(t, nil, c.args...)
		if got.code != exitOK || got.stderr != "" {
			t.Errorf("%v: ended with %d and said %q", c.args, got.code, got.stderr)
		}
		for _, s := range c.says {
			if !strings.Contains(got.stdout, s) {
				t.Errorf("%v: the help does not mention %q", c.args, s)
			}
		}
	}
}

func TestVersion(t *testing.T) {
	if got := program(t, nil, "version"); got.code != exitOK || !strings.HasPrefix(got.stdout, "velo-agent ") {
		t.Errorf("ended with %d and printed %q", got.code, got.stdout)
	}
	got := program(t, nil, "version", "--json")
	var v struct{ Version, Go, OS, Arch string }
	if err := json.Unmarshal([]byte(got.stdout), &v); err != nil || v.Version == "" || v.OS != "linux" {
		t.Errorf("printed %q, %v", got.stdout, err)
	}
}

// TestFullDisk: what cannot be written is an error, not a success.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("needs /dev/full: %v", err)
	}
	defer full.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	for _, args := range [][]string{
		{"version"},
		{"version", "--json"},
		{"completion", "bash"},
		{"probes"},
		{"probes", "--json"},
		{"diagnose", "--port", port, "--for", "100ms"},
		{"diagnose", "--port", port, "--for", "100ms", "--json"},
		{"diagnose", "--port", port, "--for", "100ms", "--markdown"},
	} {
		got := program(t, full, args...)
		if got.code != exitInternal || !strings.Contains(got.stderr, "no space left") {
			t.Errorf("%v: ended with %d and said %q, want %d and that there is no space", args, got.code, got.stderr, exitInternal)
		}
	}
}

// TestDiagnose asks for each form of the report. Where there are no rights it is
// printed too, with another code.
func TestDiagnose(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	for flag, begins := range map[string]string{"": "", "--json": "{\n", "--markdown": "# Where the time goes"} {
		args := []string{"diagnose", "-p", port, "--for", "200ms"}
		if flag != "" {
			args = append(args, flag)
		}
		got := program(t, nil, args...)
		switch got.code {
		case exitOK, exitFindings:
		case exitMissing:
			if !strings.Contains(got.stderr, "velo-agent: a signal that is needed could not be had") {
				t.Errorf("%s: code %d without a sentence: %q", flag, got.code, got.stderr)
			}
		default:
			t.Errorf("%s: ended with %d: %s", flag, got.code, got.stderr)
		}
		if !strings.HasPrefix(got.stdout, begins) || !strings.Contains(got.stdout, port) {
			t.Errorf("%s: printed %q", flag, got.stdout)
		}
		if flag == "--json" {
			var r struct{ Schema string }
			if err := json.Unmarshal([]byte(got.stdout), &r); err != nil || r.Schema != "velo-agent.report.v1" {
				t.Errorf("the JSON report: schema %q, %v", r.Schema, err)
			}
		}
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{errors.New("anything else"), exitInternal},
		{usage(errors.New("wrong")), exitUsage},
		{codeError{code: exitFindings}, exitFindings},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%v ends with %d, want %d", c.err, got, c.want)
		}
	}
	if s := oneLine("a\nb\n"); s != "a; b" {
		t.Errorf("joined lines are %q", s)
	}
}

func TestCompletionScriptsAreShell(t *testing.T) {
	got := program(t, nil, "completion", "bash")
	cmd := exec.Command("bash", "-n")
	cmd.Stdin = strings.NewReader(got.stdout)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("bash refuses the script: %v\n%s", err, out)
	}
	words := program(t, nil, "--generate-bash-completion")
	for _, w := range []string{"diagnose", "probes", "version"} {
		if !strings.Contains(words.stdout, w) {
			t.Errorf("the words to complete are %q", words.stdout)
		}
	}
}
