// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/velo-agent/velo-agent/bpf/ladder"
)

func TestParseLink(t *testing.T) {
	const raw = "pos:\t0\nflags:\t02000000\nlink_type:\traw_tracepoint\nlink_id:\t494\nprog_tag:\ta04f5eef06a7f555\nprog_id:\t590\ntp_name:\tinet_sock_set_state\n"
	l, ok, err := parseLink(raw)
	if err != nil || !ok || l.id != 494 || l.program != 590 || l.hook != (Hook{"inet_sock_set_state", ebpf.AttachTraceRawTp}) {
		t.Errorf("%+v, %v, %v", l, ok, err)
	}
	for _, other := range []string{
		"pos:\t0\nflags:\t02\nmnt_id:\t15\n",
		"link_type:\titer\nlink_id:\t1\nprog_id:\t2\ntarget_name:\ttcp\n",
	} {
		if _, ok, err := parseLink(other); ok || err != nil {
			t.Errorf("%q is taken for a link to a hook (%v)", other, err)
		}
	}
	if _, _, err := parseLink("link_type:\traw_tracepoint\ntp_name:\tx\n"); err == nil {
		t.Error("a link without a number gives no error")
	}
}

func TestSwitch(t *testing.T) {
	want := []Hook{{"sched_switch", ebpf.AttachTraceRawTp}, {"tcp_rcv_space_adjust", ebpf.AttachTraceRawTp}}
	c, err := attachEmpty(want)
	if errors.Is(err, ladder.ErrCapability) || errors.Is(err, ladder.ErrNoBTF) || errors.Is(err, ladder.ErrLockdown) {
		t.Skip("no right to attach programs: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	expect := func(when string, want []Hook) {
		t.Helper()
		if got, err := ownHooks(); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: hooks %v, %v, want %v", when, got, err, want)
		}
	}
	expect("attached", want)
	s, err := takeLinks()
	if err != nil {
		t.Fatal(err)
	}
	expect("taken", nil)
	for range 2 {
		if err := s.set(true); err != nil {
			t.Fatal(err)
		}
		expect("on", want)
		if err := s.set(false); err != nil {
			t.Fatal(err)
		}
		expect("off", nil)
	}
	if err := errors.Join(s.close(), c.Close()); err != nil {
		t.Error(err)
	}
}
