// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDefaultIsValid(t *testing.T) {
	c := Default()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if c.Listen != ":9766" || c.Objectives.Gap != 200*time.Millisecond || c.Record.MaxBytes != 256*MiB || !c.Watch.Engines {
		t.Errorf("the defaults are %+v", c)
	}
}

var wordBegins = regexp.MustCompile(`([a-z]|TLS)([A-Z])`)

// Every field has a row under its name in snake_case, and every row has its field.
func TestEachFieldHasItsKey(t *testing.T) {
	var names []string
	c := new(Config)
	var walk func(at string, v reflect.Value)
	walk = func(at string, v reflect.Value) {
		for i := range v.NumField() {
			name := join(at, strings.ToLower(wordBegins.ReplaceAllString(v.Type().Field(i).Name, "${1}_${2}")))
			if v.Field(i).Kind() == reflect.Struct {
				walk(name, v.Field(i))
				continue
			}
			names = append(names, name)
			if k := keyNamed(name); k == nil {
				t.Errorf("%s has no row", name)
			} else if k.field(c) != v.Field(i).Addr().Interface() {
				t.Errorf("the row %s is of another field", name)
			}
		}
	}
	walk("", reflect.ValueOf(c).Elem())
	if len(names) != len(keys) {
		t.Errorf("%d fields and %d rows", len(names), len(keys))
	}
	for i := range keys {
		k := &keys[i]
		if section, _ := k.split(); k.help == "" || section != "" && sections[section] == "" {
			t.Errorf("%s or its section has no help", k.name)
		}
	}
}

func TestNeedsRestart(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   []string
	}{
		{"nothing", func(*Config) {}, nil},
		{"reloadable", func(c *Config) {
			c.Watch.Ports, c.Objectives.TTFT, c.Log.Level, c.DrainTimeout = []uint16{1}, time.Second, "debug", 0
		}, nil},
		{"listen", func(c *Config) { c.Listen = "" }, []string{"listen"}},
		{"all", func(c *Config) {
			c.Record.Dir, c.User, c.WebConfig, c.Listen = "/r", "velo", "/w", ":1"
			c.Socket, c.Probes.Enabled, c.Probes.Content, c.Record.Keep = Socket{"/s", "g"}, false, "none", time.Hour
		}, []string{"listen", "web_config", "socket.path", "socket.group", "user", "probes.enabled", "probes.content", "record.dir", "record.keep"}},
	} {
		next := Default()
		c.change(next)
		if got := NeedsRestart(Default(), next); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q need a restart, want %q", c.name, got, c.want)
		}
	}
}

func TestValidateTellsAll(t *testing.T) {
	c := Default()
	c.Watch.Engines = false
	c.Listen = "9766"
	c.User = "root"
	c.Objectives.TTFT = 0
	c.Probes.Accept = "sometimes"
	c.Record.Dir = "record\x00"
	c.Record.Keep, c.Record.Every = time.Minute, time.Hour
	c.Record.MaxBytes = 1
	want := `listen: "9766" is no address: give an address host:port like ":9766"
user: "root" is root, whose rights the daemon gives up: give a user's name or number other than root like nobody
objectives.ttft: 0s is out of range: give 1ms to 1h
probes.accept: "sometimes" is not known: say exact or cheap
record.dir: "record\x00" holds a control character: give an absolute path like /var/lib/velo-agent/record
record.max_bytes: 1 is out of range: give 1MiB to 1TiB
watch.engines: nothing would be watched: set it to true, or name watch.ports or watch.cgroups
record.keep: 1m is shorter than record.every, 1h: keep snapshots at least until the next one is taken`
	err := c.Validate()
	if !errors.Is(err, ErrConfig) || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}

	c = Default()
	c.Watch.Ports = []uint16{8000, 0, 8000}
	c.Watch.Cgroups = slices.Repeat([]string{"a"}, mostItems+1)
	var e *Error
	if err := c.Validate(); !errors.As(err, &e) || e.Problems[0].Key != "watch.ports[1]" || e.Problems[1].Key != "watch.ports[2]" {
		t.Errorf("got %v", err)
	} else if len(e.Problems) != mostProblems || e.Count() != 2+2*(mostItems+1) || !strings.HasSuffix(err.Error(), "\nand 1952 more") {
		t.Errorf("%d problems kept of %d", len(e.Problems), e.Count())
	}
}

func TestWords(t *testing.T) {
	for _, c := range []struct {
		kind words
		good []string
		bad  []string
	}{
		{
			address,
			[]string{"", ":9766", "127.0.0.1:0", "[::1]:80", "[fe80::1%eth0]:80", "node-1.example:65535", "localhost:9766"},
			[]string{"9766", ":", ":http", ":65536", ":-1", ":+1", "a b:1", "::1:80", "/x:1", "-a:1"},
		},
		{directory, []string{"/var/lib", "/a b/é"}, []string{"", "var/lib", "/", "//", "/x/..", "/a\nb", "/" + strings.Repeat("a", 4095)}},
		{socketPath, []string{"/" + strings.Repeat("a", 106)}, []string{"/" + strings.Repeat("a", 107), "@abstract", "\xff"}},
		{optionalFile, []string{"", "/etc/web.yaml"}, []string{"web.yaml"}},
		{cgroup, []string{"/", "/system.slice/a.service"}, []string{"", "a.service"}},
		{user, []string{"nobody", "_velo", "65534", "machine$", "a.b-c"}, []string{"", "root", "0", "00", "-1", "a b", "4294967295", "4294967296", strings.Repeat("a", 33)}},
		{group, []string{"", "root", "0", "monitoring"}, []string{"a:b", "4294967295"}},
	} {
		for _, s := range c.good {
			if f := c.kind.verify(s); f != nil {
				t.Errorf("%s: %q %v", c.kind.what, s, f)
			}
		}
		for _, s := range c.bad {
			if c.kind.verify(s) == nil {
				t.Errorf("%s: %q is taken", c.kind.what, s)
			}
		}
	}
}

func TestSizes(t *testing.T) {
	for s, want := range map[string]ByteSize{
		"0": 0, "1": 1, "1000": 1000, "5B": 5, "1KiB": KiB, "256MiB": 256 * MiB, "3GiB": 3 * GiB, "8388607TiB": 8388607 * TiB,
	} {
		got, err := parseSize(s)
		if err != nil || got != want {
			t.Errorf("%q is %d, %v", s, got, err)
		}
		if again, err := parseSize(got.String()); err != nil || again != got {
			t.Errorf("%d is written %q and read as %d, %v", got, got, again, err)
		}
	}
	for _, s := range []string{"", "MiB", "-1", "+1", "010", "1.5GiB", "1MB", "1 MiB", "1mib", "8388608TiB", "99999999999999999999", "0x10"} {
		if got, err := parseSize(s); err == nil {
			t.Errorf("%q is taken for %d", s, got)
		}
	}
}

func TestDurationsAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		24 * time.Hour: "24h", 90 * time.Minute: "1h30m", time.Hour + time.Second: "1h0m1s", 20 * time.Second: "20s",
		10 * time.Minute: "10m", 200 * time.Millisecond: "200ms", 0: "0s", 10 * time.Hour: "10h",
	} {
		if got := formatDuration(d); got != want {
			t.Errorf("%v is written %q, want %q", d, got, want)
		}
	}
}
