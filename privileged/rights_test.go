// SPDX-License-Identifier: Apache-2.0

package privileged

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// part makes this test's binary another program.
const part = "VELO_AGENT_PRIVILEGED_TEST"

func TestMain(m *testing.M) {
	switch os.Getenv(part) {
	case "become":
		os.Setenv(part, "status")
		fmt.Println(Become(Identity{65534, 65534}, os.Geteuid() == 0, os.Args, os.Environ()))
		os.Exit(1)
	case "helper":
		os.Setenv(part, "status")
		fmt.Println(RunAsHelper(os.Args, os.Environ()))
		os.Exit(1)
	case "status":
		b, _ := os.ReadFile("/proc/self/status")
		os.Stdout.Write(b)
		os.Exit(0)
	case "serve":
		conn, err := Conn(HelperFD)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		if Serve(conn, Verbs{"pid": func([]byte) (any, error) { return os.Getpid(), nil }}, func(error) string { return "" }) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func play(t *testing.T, role string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), part+"="+role)
	return cmd
}

// status runs the role and returns the lines of its /proc/self/status.
func status(t *testing.T, role string) map[string]string {
	t.Helper()
	out, err := play(t, role).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := map[string]string{}
	for s := bufio.NewScanner(strings.NewReader(string(out))); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), ":")
		lines[name] = strings.Join(strings.Fields(value), " ")
	}
	return lines
}

const noCapabilities = "0000000000000000"

func TestBecome(t *testing.T) {
	got := status(t, "become")
	if got["NoNewPrivs"] != "1" {
		t.Errorf("NoNewPrivs is %s", got["NoNewPrivs"])
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
		if got[set] != noCapabilities {
			t.Errorf("%s is %s", set, got[set])
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("becoming another user needs root; the rest was checked")
	}
	if want := "65534 65534 65534 65534"; got["Uid"] != want || got["Gid"] != want || got["Groups"] != "" || got["CapBnd"] != noCapabilities {
		t.Errorf("uid %q, gid %q, groups %q, bounding set %s", got["Uid"], got["Gid"], got["Groups"], got["CapBnd"])
	}
}

func TestRunAsHelper(t *testing.T) {
	got := status(t, "helper")
	var mask uint64
	for _, k := range kept {
		mask |= 1 << k.cap
	}
	for _, set := range []string{"CapPrm", "CapEff", "CapInh", "CapAmb"} {
		var have uint64
		if _, err := fmt.Sscanf(got[set], "%x", &have); err != nil || have&^mask != 0 {
			t.Errorf("%s is %s, at most %x is wanted (%v)", set, got[set], mask, err)
		}
		if os.Geteuid() == 0 && have == 0 {
			t.Errorf("%s is empty: the probes need some of it", set)
		}
	}
	if got["NoNewPrivs"] != "1" {
		t.Errorf("NoNewPrivs is %s", got["NoNewPrivs"])
	}
}

func TestSpawn(t *testing.T) {
	cmd := play(t, "serve")
	cmd.Stderr = io.Discard
	f, err := Spawn(cmd)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := Inherit(f)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := Conn(fd) // as after an exec
	if err != nil {
		t.Fatal(err)
	}
	c := NewClient(conn)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var pid int
	if err := c.Call(ctx, "pid", nil, &pid); err != nil || pid != cmd.Process.Pid {
		t.Errorf("pid %d, want %d: %v", pid, cmd.Process.Pid, err)
	}
	c.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("the helper did not end in order with the connection: %v", err)
	}
}
