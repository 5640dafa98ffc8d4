// SPDX-License-Identifier: Apache-2.0

package sched

//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip -target amd64,arm64 -no-global-types sched sched.bpf.c -- -O2 -g -mcpu=v3 -Wall -Wpadded -Werror -Wno-unused-function -I/usr/include/x86_64-linux-gnu
