// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ByteSize is a number of bytes.
type ByteSize int64

// The units of sizes.
const (
	KiB ByteSize = 1 << (10 * (iota + 1))
	MiB
	GiB
	TiB
)

var sizeUnits = []struct {
	name string
	size ByteSize
}{{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"B", 1}, {"", 1}}

// String writes the size in the largest unit that divides it.
func (b ByteSize) String() string {
	for _, u := range sizeUnits {
		if b != 0 && b%u.size == 0 && u.size > 1 {
			return strconv.FormatInt(int64(b/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// parseSize reads what String writes, and a B behind plain bytes.
func parseSize(s string) (ByteSize, error) {
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, ok := decimal(digits)
		if !ok || n > uint64(math.MaxInt64/u.size) {
			break
		}
		return ByteSize(n) * u.size, nil
	}
	return 0, fmt.Errorf("%s is no size", quote(s))
}

// formatDuration writes 24h where Duration.String writes 24h0m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// decimal reads a number of digits alone. YAML gives a zero before others a meaning
// of its own, so it is refused.
func decimal(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil && strconv.FormatUint(n, 10) == s
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
