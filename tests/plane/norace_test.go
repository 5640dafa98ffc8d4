// SPDX-License-Identifier: Apache-2.0

//go:build !race

package plane_test

const raced = false
