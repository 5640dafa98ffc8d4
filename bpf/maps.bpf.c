//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The maps that all signals share, and the types that cross to Go. No program. */
#include "include/accept.h"
#include "include/record.h"
#include "include/wake.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* A type that no map holds is kept in the BTF by a pointer to it. */
const struct record *unused_record __attribute__((unused));
