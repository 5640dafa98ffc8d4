// SPDX-License-Identifier: Apache-2.0

// Package attribution turns the steps of a connection (bytes arrived, read,
// handed to the kernel, left) into exchanges, gaps and stages that add up. It is
// pure Go: it knows no kernel, no BPF and no Prometheus.
package attribution
