// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"
)

func TestMoment(t *testing.T) {
	zone := time.FixedZone("here", 2*3600)
	now := time.Date(2026, 5, 10, 14, 40, 0, 0, zone)
	for _, c := range []struct{ say, want string }{
		{"14:03", "2026-05-10T14:03:00+02:00"},
		{"14:41", "2026-05-09T14:41:00+02:00"}, // the last one
		{"09:05:07", "2026-05-10T09:05:07+02:00"},
		{"2026-05-09 23:10", "2026-05-09T23:10:00+02:00"},
		{"2026-05-09T23:10:05", "2026-05-09T23:10:05+02:00"},
		{"2026-05-09T21:10:05Z", "2026-05-09T23:10:05+02:00"},
		{"-40m", "2026-05-10T14:00:00+02:00"},
	} {
		got, err := Moment(c.say, now)
		if err != nil || got.In(zone).Format(time.RFC3339) != c.want {
			t.Errorf("%q is %v (%v), want %s", c.say, got.In(zone), err, c.want)
		}
	}
	for _, bad := range []string{"", "25:00", "yesterday", "-", "--5m", "-x", "14"} {
		if got, err := Moment(bad, now); err == nil {
			t.Errorf("%q was taken for %v", bad, got)
		}
	}
}
