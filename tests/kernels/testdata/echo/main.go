// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command echo prints the kernel's release, its second argument, $WORD and a file
// that was carried into the guest, and ends with its first argument. It fails
// where init left something out that a program may count on.
package main

import (
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

func main() {
	var u unix.Utsname
	check(unix.Uname(&u))
	code, err := strconv.Atoi(os.Args[1])
	check(err)
	file, err := os.ReadFile("/data/file")
	check(err)
	for _, a := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", a)
		check(err)
		l.Close()
	}
	for _, p := range []string{"/proc/self/stat", "/sys/kernel/btf/vmlinux", "/sys/fs/cgroup/cgroup.procs", "/dev/null", "/proc/net/tcp"} {
		_, err := os.Stat(p)
		check(err)
	}
	check(os.WriteFile("/tmp/x", nil, 0o600))
	fmt.Println(unix.ByteSliceToString(u.Release[:]))
	fmt.Println(os.Args[2])
	fmt.Println(os.Getenv("WORD"))
	fmt.Println(string(file))
	fmt.Fprint(os.Stderr, "done")
	os.Exit(code)
}

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(99)
	}
}
