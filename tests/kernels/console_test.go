// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestConsole(t *testing.T) {
	for _, tt := range []struct {
		name, in            string
		code                int
		ok                  bool
		stdout, stderr, log string
	}{
		{
			name: "whole", in: "SeaBIOS\r\n@guest start\r\n@1 a\r\n@2 b\r\n@1 c\r\n@guest exit 3\r\nreboot: Power down\r\n",
			code: 3, ok: true, stdout: "a\nc\n", stderr: "b\n", log: "SeaBIOS\n",
		},
		{
			name: "cursor movements before the start", in: "\x1b[2J\x1b[Hboot\x1bc@guest start\n@1 a\n@guest exit 0\n",
			ok: true, stdout: "a\n",
		},
		{
			name: "the kernel speaks between two lines", in: "@guest start\n@1 a\n[1.0] BUG: oops\n@1 b\n@guest exit 0\n",
			ok: true, stdout: "a\nb\n", log: "[1.0] BUG: oops\n",
		},
		{
			name: "marks in the program's own output", in: "@guest start\n@1 @guest exit 7\n@1 @guest start\n@1 \n@guest exit 0\n",
			ok: true, stdout: "@guest exit 7\n@guest start\n\n",
		},
		{name: "no end", in: "@guest start\n@1 a\n[2.0] Kernel panic\n", stdout: "a\n", log: "[2.0] Kernel panic\n"},
		{name: "exit code cut short", in: "@guest start\n@guest exit 1"},
		{name: "no start", in: "Kernel panic\n@guest exit 0\n", log: "Kernel panic\n"},
		{name: "not a number", in: "@guest start\n@guest exit x\n", log: "@guest exit x\n"},
		{name: "nothing", in: ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newConsole(time.Now())
			if err := c.read(iotest.OneByteReader(strings.NewReader(tt.in))); err != nil {
				t.Fatal(err)
			}
			code, ok := c.result()
			if ok != tt.ok || ok && code != tt.code {
				t.Errorf("result is %d, %v, want %d, %v", code, ok, tt.code, tt.ok)
			}
			if c.out.Stdout != tt.stdout || c.out.Stderr != tt.stderr {
				t.Errorf("printed %q and %q, want %q and %q", c.out.Stdout, c.out.Stderr, tt.stdout, tt.stderr)
			}
			if tt.log != "" && !strings.Contains(c.out.Console, tt.log) {
				t.Errorf("the kernel's lines are %q, want %q in them", c.out.Console, tt.log)
			}
		})
	}
}

func TestConsoleSaysWhatInitCouldNotDo(t *testing.T) {
	c := newConsole(time.Now())
	if err := c.read(strings.NewReader("@guest error loading the module x: no such file\n@guest exit 0\n")); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.result(); ok || c.err == nil || !strings.Contains(c.err.Error(), "loading the module x") {
		t.Errorf("the error is %v", c.err)
	}
}

func TestConsoleTail(t *testing.T) {
	c := newConsole(time.Now())
	in := strings.Repeat("early\n", 100) + strings.Repeat("late\n", tailLines)
	if err := c.read(strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	if got := c.tail(); strings.Contains(got, "early") || strings.Count(got, "late") != tailLines {
		t.Errorf("the tail is %q", got)
	}
}
