// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// role makes this test's binary another process of a test.
const role = "VELO_PLANE_TEST_ROLE"

func TestMain(m *testing.M) {
	if play := roles[os.Getenv(role)]; play != nil {
		play()
		return
	}
	goleak.VerifyTestMain(m)
}

// pick is the figure of the short form, or the full one; the race detector, which makes all
// of it slower, takes a part of the short one.
func pick(short, full int) int {
	if testing.Short() {
		if raced {
			return max(short/4, 1)
		}
		return short
	}
	return full
}
