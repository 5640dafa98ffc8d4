// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"testing"
)

func TestInNetNSLeavesNoTaintedThread(t *testing.T) {
	pid := otherNetNS(t)
	h := Host{}
	home, err := readNSLink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	there, err := readNSLink(h.pidPath(pid, "ns", "net"))
	if err != nil {
		t.Skip(err)
	}
	want := errors.New("from inside")
	for range 20 {
		err := h.InNetNS(pid, func() error {
			if ns, err := readNSLink("/proc/thread-self/ns/net"); ns != there {
				t.Errorf("inside: %d, %v, want %d", ns, err, there)
			}
			return want
		})
		if errors.Is(err, fs.ErrPermission) {
			t.Skip(err)
		}
		if err != want {
			t.Fatalf("got %v", err)
		}
	}
	for range 20 {
		if err := h.InNetNS(pid, func() error { runtime.Goexit(); return nil }); err == nil {
			t.Error("a function that ends its goroutine: no error")
		}
	}
	if ns, err := readNSLink("/proc/self/ns/net"); ns != home {
		t.Errorf("the main thread is in %d, %v, want %d", ns, err, home)
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if ns, err := readNSLink("/proc/thread-self/ns/net"); ns != home {
				t.Errorf("a thread is in %d, %v, want %d", ns, err, home)
			}
		})
	}
	wg.Wait()
}

func TestInNetNSOwn(t *testing.T) {
	ran := false
	if err := (Host{}).InNetNS(os.Getpid(), func() error { ran = true; return nil }); err != nil || !ran {
		t.Errorf("ran %v, %v", ran, err)
	}
	if err := (Host{}).InNetNS(1<<22+1, func() error { return nil }); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a process that is not there: %v", err)
	}
}

func TestNetSysctl(t *testing.T) {
	h := Host{}
	for _, key := range []string{"", "kernel/hostname", "net/../kernel/hostname", "/etc/passwd", "../net/x"} {
		if _, err := h.NetSysctl(os.Getpid(), key); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%q: %v", key, err)
		}
	}
	if _, err := h.NetSysctl(os.Getpid(), "net/core/no_such_key"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("unknown key: %v", err)
	}
	if v, err := h.NetSysctl(os.Getpid(), "net/ipv4/tcp_syncookies"); v == "" || err != nil {
		t.Errorf("got %q, %v", v, err)
	}
}

func TestInInitPIDNS(t *testing.T) {
	if _, err := (Host{}).InInitPIDNS(); err != nil {
		t.Error(err)
	}
}
