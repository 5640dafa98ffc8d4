// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// changed differs from the default in every key.
func changed() *Config {
	return &Config{
		Watch:      Watch{Ports: []uint16{8000, 65535}, Cgroups: []string{`/a "b"\é`, "/true"}},
		WebConfig:  "/etc/velo-agent/web: #.yaml",
		Socket:     Socket{"/run/é", "12"},
		User:       "65534",
		Objectives: Objectives{1500 * time.Millisecond, time.Millisecond},
		Probes:     Probes{Accept: "exact", Content: "none"},
		Record:     Record{Dir: "/r", Every: time.Hour, Keep: 90 * time.Minute, MaxBytes: MiB + 1},
		Plane: Plane{
			Enabled: true, Listen: ":1", Advertise: "[2001:db8::5]:2", Socket: "/run/plane.sock", Insecure: true, Discovery: "/run/peers.json",
			TLSCert: "/c", TLSKey: "/k", TLSCA: "/ca", TLSAllow: []string{"a: b=*", "spiffe://x/y=00112233-4455-6677-8899-aabbccddeeff"},
			Window: 16, SlotBytes: KiB + 1, Linger: time.Millisecond, Heartbeat: time.Second,
		},
		Log: Log{"warn", "json"},
	}
}

func TestShowLoadsBack(t *testing.T) {
	for name, c := range map[string]*Config{"default": Default(), "changed": changed()} {
		if err := c.Validate(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for form, text := range map[string][]byte{"YAML": Show(c), "JSON": ShowJSON(c)} {
			got, err := loadText(string(text))
			if err != nil || !reflect.DeepEqual(got, c) {
				t.Errorf("%s, %s: %v\ngot  %+v\nwant %+v\n%s", name, form, err, got, c, text)
			}
		}
	}
}

func TestShowMarksWhatDiffers(t *testing.T) {
	const mark = " CHANGED.\n"
	if n := bytes.Count(Show(Default()), []byte(mark)); n != 0 {
		t.Errorf("%d keys of the default differ from it", n)
	}
	if n := bytes.Count(Show(changed()), []byte(mark)); n != len(keys) {
		t.Errorf("%d keys of %d are marked", n, len(keys))
	}
	c := Default()
	c.Log.Level = "debug"
	if s := string(Show(c)); !strings.Contains(s, "Default: info (debug, info, warn or error). CHANGED.\n  level: debug\n") {
		t.Errorf("the mark is not with its key:\n%s", s)
	}
}

// Each key has a comment, which tells its help.
func TestShowExplains(t *testing.T) {
	var doc yaml.Node
	if err := yaml.Unmarshal(Show(Default()), &doc); err != nil {
		t.Fatal(err)
	}
	seen := 0
	var walk func(at string, n *yaml.Node)
	walk = func(at string, n *yaml.Node) {
		for i := 0; i < len(n.Content); i += 2 {
			name := join(at, n.Content[i].Value)
			want := sections[name]
			if k := keyNamed(name); k != nil {
				want = k.help
				seen++
			}
			comment := strings.Join(strings.Fields(strings.ReplaceAll(n.Content[i].HeadComment, "#", "")), " ")
			if want == "" || !strings.HasPrefix(comment, want) {
				t.Errorf("%s has the comment %q, want %q", name, comment, want)
			}
			if n.Content[i+1].Kind == yaml.MappingNode {
				walk(name, n.Content[i+1])
			}
		}
	}
	// The file's own comment is apart from that of the first section.
	walk("", doc.Content[0])
	if seen != len(keys) {
		t.Errorf("%d keys of %d are shown", seen, len(keys))
	}
}
