// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"os"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
)

const childPart = "live-test-child"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childPart {
		Serve(func(words []string) (string, error) {
			if words[0] == "fail" {
				return "", errors.New("as asked\nfor")
			}
			return strings.Join(words, "+"), nil
		})
		return
	}
	goleak.VerifyTestMain(m)
}

func TestChild(t *testing.T) {
	c, err := StartChild(false, childPart)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Ask("add", 1, 2); got != "add+1+2" || err != nil {
		t.Errorf("answered %q, %v", got, err)
	}
	if _, err := c.Ask("fail"); err == nil || !strings.HasSuffix(err.Error(), "as asked for") {
		t.Errorf("answered %v, want its error", err)
	}
	for name, f := range map[string]func(int) bool{
		"memory": func(pid int) bool {
			r, err := rollup(pid)
			return err == nil && r.Anon > 0 && r.PSS > r.Anon && r.RSS >= r.PSS
		},
		"CPU":         func(pid int) bool { cpu, err := cpuOf(pid); return err == nil && cpu >= 0 },
		"descriptors": func(pid int) bool { n, err := descriptors(pid); return err == nil && n >= 3 },
	} {
		if !f(c.PID) {
			t.Errorf("%s of a living child is not told", name)
		}
	}
	c.Stop()
	if _, err := c.Ask("add"); err == nil {
		t.Error("a child that was stopped answers")
	}
	if _, err := descriptors(c.PID); err == nil {
		t.Error("a child that was stopped has descriptors")
	}
}

func TestPage(t *testing.T) {
	label := func(name, value string) []*dto.LabelPair { return []*dto.LabelPair{{Name: &name, Value: &value}} }
	p := Page{
		"fill": {Metric: []*dto.Metric{
			{Label: label("map", "ports"), Gauge: &dto.Gauge{Value: new(3.0)}},
			{Label: label("map", "roles"), Gauge: &dto.Gauge{Value: new(4.0)}},
		}},
		"wait": {Metric: []*dto.Metric{{Histogram: &dto.Histogram{Bucket: make([]*dto.Bucket, 17)}}}},
	}
	if all, one, none := p.Sum("fill"), p.Sum("fill", "map", "roles"), p.Sum("other"); all != 7 || one != 4 || none != 0 {
		t.Errorf("sums %v, %v and %v, want 7, 4 and 0", all, one, none)
	}
	// 17 buckets, +Inf, the sum and the count.
	if sets, series := p.Sets(); sets != 3 || series != 22 {
		t.Errorf("%d label sets, %d series, want 3 and 22", sets, series)
	}
}
