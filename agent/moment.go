// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"strings"
	"time"
)

// momentLayouts are the ways of naming a time, in local time where no zone is given.
var momentLayouts = []string{
	time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "15:04:05", "15:04",
}

// Moment reads a time: a date and time, a time of day (the last one before now), or
// how long ago, like -40m.
func Moment(s string, now time.Time) (time.Time, error) {
	if ago, ok := strings.CutPrefix(s, "-"); ok {
		d, err := time.ParseDuration(ago)
		if err != nil || d < 0 {
			return time.Time{}, fmt.Errorf("%q: how long ago is written like -40m or -1h30m", s)
		}
		return now.Add(-d), nil
	}
	for _, layout := range momentLayouts {
		t, err := time.ParseInLocation(layout, s, now.Location())
		if err != nil {
			continue
		}
		if t.Year() == 0 { // a time of day
			t = time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0, now.Location())
			if t.After(now) {
				t = t.AddDate(0, 0, -1)
			}
		}
		return t, nil
	}
	return time.Time{}, fmt.Errorf("%q is no time: give 14:03, 2006-01-02T14:03, a time with a zone, or -40m for 40 minutes ago", s)
}
