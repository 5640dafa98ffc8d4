// SPDX-License-Identifier: Apache-2.0

package sockqueue

//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip -target amd64,arm64 -no-global-types -type sock_line sockqueue sockqueue.bpf.c -- -O2 -g -mcpu=v3 -Wall -Wpadded -Werror -Wno-unused-function -I/usr/include/x86_64-linux-gnu
