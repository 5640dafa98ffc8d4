// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"
)

func TestJoinDiff(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"velo-agent diagnose --diff 13:00 14:00 --for 5m", "velo-agent diagnose --diff=13:00,14:00 --for 5m"},
		{"velo-agent diagnose --for 5m --diff -20m -10m", "velo-agent diagnose --for 5m --diff=-20m,-10m"},
		{"velo-agent diagnose --diff 13:00 --for 5m", "velo-agent diagnose --diff 13:00 --for 5m"},
		{"velo-agent diagnose --diff 13:00", "velo-agent diagnose --diff 13:00"},
		{"velo-agent diagnose", "velo-agent diagnose"},
	} {
		in := strings.Fields(c.in)
		if got := joinDiff(slices.Clone(in)); strings.Join(got, " ") != c.want {
			t.Errorf("%q became %q", c.in, got)
		}
	}
}

func TestPastUsage(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"diagnose --at noon", exitUsage, "is no time"},
		{"diagnose --at 14:00 --diff 13:00 14:00", exitUsage, "exclude each other"},
		{"diagnose --diff 13:00", exitUsage, "two times"},
		{"diagnose --at -5m --record " + dir, exitNotThere, "the record has nothing"},
		{"diagnose --at -5m --record " + dir + "/none", exitNotThere, "there is no record"},
		{"run --config " + dir + "/none.yaml", exitUsage, "none.yaml"},
		{"run now", exitUsage, "takes flags only"},
		{"helper", exitInternal, "not by hand"},
	} {
		got := program(t, nil, strings.Fields(c.args)...)
		if got.code != c.code || !strings.Contains(got.stderr, c.says) {
			t.Errorf("%s: code %d, said %q; want %d and %q", c.args, got.code, got.stderr, c.code, c.says)
		}
	}
}
