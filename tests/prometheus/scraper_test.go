// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// scraper is a Prometheus of the test's own.
type scraper struct{ address string }

// startScraper starts Debian's Prometheus, which scrapes the targets each second. It
// sees them from their first second on: it is started before them.
func startScraper(t *testing.T, dir string, rules []string, features string, targets ...string) *scraper {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("no prometheus: install Debian's package prometheus")
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	conf, err := yaml.Marshal(settings{
		"global":     settings{"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
		"rule_files": rules,
		"scrape_configs": []settings{{
			"job_name": "velo-agent", "static_configs": []settings{{"targets": targets}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "prometheus.yml"), string(conf))
	s := &scraper{freePort(t)}
	cmd := exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+s.address)
	if features != "" {
		cmd.Args = append(cmd.Args, "--enable-feature="+features)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	start(t, cmd)
	if err := until(20*time.Second, func() error { return wantOK("http://" + s.address + "/-/ready") }); err != nil {
		text, _ := os.ReadFile(log.Name())
		t.Fatalf("%v\n%s", err, text)
	}
	return s
}

// ask asks Prometheus' API and decodes the data of its answer.
func (s *scraper) ask(path string, q url.Values, data any) error {
	a, err := get(client, "http://"+s.address+"/api/v1/"+path+"?"+q.Encode())
	if err != nil {
		return err
	}
	var reply struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.Unmarshal([]byte(a.body), &reply); err != nil {
		return fmt.Errorf("%s: %w", a.body, err)
	}
	if reply.Status != "success" {
		return fmt.Errorf("asking %s for %v: %s", path, q, reply.Error)
	}
	return json.Unmarshal(reply.Data, data)
}

// sample is one element of an instant vector.
type sample struct {
	labels map[string]string
	value  float64
}

// query executes an expression now. What is not a number is left out.
func (s *scraper) query(expr string) ([]sample, error) {
	var data struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
	if err := s.ask("query", url.Values{"query": {expr}}, &data); err != nil {
		return nil, err
	}
	var out []sample
	for _, r := range data.Result {
		text, _ := r.Value[1].(string)
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", expr, err)
		}
		if !math.IsNaN(v) {
			out = append(out, sample{r.Metric, v})
		}
	}
	return out, nil
}

// answers is an error where an expression has no answer.
func (s *scraper) answers(expr string) error {
	got, err := s.query(expr)
	if err == nil && len(got) == 0 {
		err = fmt.Errorf("no data: %s", expr)
	}
	return err
}

// silent is an error where an expression has an answer.
func (s *scraper) silent(expr string) error {
	got, err := s.query(expr)
	if err == nil && len(got) > 0 {
		err = fmt.Errorf("%s: %d answers, the first %v", expr, len(got), got[0])
	}
	return err
}

// series are the label sets that match.
func (s *scraper) series(match string) (sets []map[string]string, err error) {
	return sets, s.ask("series", url.Values{"match[]": {match}}, &sets)
}

// rule is one rule as Prometheus tells of it.
type rule struct {
	Name, Query, Health, LastError string
}

func (s *scraper) rules() ([]rule, error) {
	var data struct {
		Groups []struct{ Rules []rule }
	}
	err := s.ask("rules", url.Values{}, &data)
	var all []rule
	for _, g := range data.Groups {
		all = append(all, g.Rules...)
	}
	return all, err
}
