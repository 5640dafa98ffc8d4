// SPDX-License-Identifier: Apache-2.0

package bpf

//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip -target amd64,arm64 -type config -type port -type hist -type step -type record -type conn -type thread -type thread_key -type role_stats -type watch_key -type stirred -type open_sockets -type listening maps maps.bpf.c -- -O2 -g -mcpu=v3 -Wall -Wpadded -Werror -Wno-unused-function -I/usr/include/x86_64-linux-gnu
