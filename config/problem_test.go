// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
	"testing"
)

// loadText reads one file of this text.
func loadText(text string) (*Config, error) {
	l := newLoader()
	l.file("f", []byte(text))
	return l.result()
}

const notYAML = ": see to quotes, brackets, colons and indentation here"

func TestProblems(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"unknown key", "watch:\n  engine: true\n", []string{"f:2:3: watch.engine: there is no such key: did you mean watch.engines?"}},
		{"unknown section", "wach:\n  ports: []\n", []string{"f:1:1: wach: there is no such key: did you mean watch?"}},
		{"other style", "drainTimeout: 5s\nWEB-CONFIG: /x\n", []string{
			"f:1:1: drainTimeout: there is no such key: did you mean drain_timeout?",
			"f:2:1: WEB-CONFIG: there is no such key: did you mean web_config?",
		}},
		{"wrong section", "ttft: 1s\nprobes:\n  record: {}\n", []string{
			"f:1:1: ttft: there is no such key: did you mean objectives.ttft?",
			"f:3:3: probes.record: there is no such key: did you mean record, at the top?",
		}},
		{"dotted", "watch.ports: [1]\n", []string{"f:1:1: watch.ports: there is no such key: write it as a section, watch: and below it, indented, ports:"}},
		{"far from all", "log: {colour: red}\nxyzzy: 1\n", []string{
			"f:1:7: log.colour: there is no such key: in log there are level, format",
			"f:2:1: xyzzy: there is no such key: at the top there are watch, listen, web_config, socket, user, objectives, probes, record, plane, log, drain_timeout",
		}},
		{"long key", "? " + strings.Repeat("a", 2000) + "\n: 1\n", []string{
			`f:1:3: "` + strings.Repeat("a", 64) + `...": there is no such key: at the top there are watch, listen, web_config, socket, user, objectives, probes, record, plane, log, drain_timeout`,
		}},
		{"key of control characters", "\"\\e[2J\": 1\n", []string{`f:1:1: "\x1b[2J": there is no such key: at the top there are watch, listen, web_config, socket, user, objectives, probes, record, plane, log, drain_timeout`}},
		{"key that is no text", "? [a]\n: b\n", []string{`f:1:3: this is a list, and a key is meant: write it like listen: ":9766"`}},
		{"duplicate", "log: {level: info, level: debug}\nuser: a\nuser: b\n", []string{
			"f:1:20: log.level: the key is there twice, first in line 1: leave one of them out",
			"f:3:1: user: the key is there twice, first in line 2: leave one of them out",
		}},
		{"root is a list", "- a\n", []string{`f:1:1: this is a list, and a section of keys is meant: write it like listen: ":9766"`}},
		{"root is null", "~\n", []string{`f:1:1: there is no value: give a section of keys, like listen: ":9766", or leave the key out`}},
		{"section is text", "log: debug\n", []string{`f:1:6: log: this is the text "debug", and a section of keys is meant: write it like level: info`}},
		{"section is empty", "log:\nuser: a\n", []string{"f:1:5: log: there is no value: give a section of keys, like level: info, or leave the key out"}},
		{"no value", "user:\n", []string{"f:1:6: user: there is no value: give a user's name or number other than root, like nobody, or leave the key out"}},
		{"bool", "probes:\n  enabled: yes\n  scheduler: 1\n", []string{
			`f:2:12: probes.enabled: this is the text "yes", and true or false is meant: write it like true`,
			"f:3:14: probes.scheduler: this is the number 1, and true or false is meant: write it like true",
		}},
		{"duration", "objectives:\n  ttft: 2\n  gap: 2 seconds\ndrain_timeout: [1s]\n", []string{
			"f:2:9: objectives.ttft: this is the number 2, and a duration is meant: write it like 200ms, 2s or 24h",
			`f:3:8: objectives.gap: "2 seconds" is no duration: write it like 200ms, 2s or 24h`,
			"f:4:16: drain_timeout: this is a list, and a duration is meant: write it like 200ms, 2s or 24h",
		}},
		{"duration out of range", "objectives: {gap: 2h, ttft: -1s}\nrecord: {keep: 1s}\n", []string{
			"f:1:19: objectives.gap: 2h is out of range: give 1ms to 1h",
			"f:1:29: objectives.ttft: -1s is out of range: give 1ms to 1h",
			"f:2:16: record.keep: 1s is out of range: give 1m to 744h",
		}},
		{"duration overflows", "drain_timeout: 999999999h\n", []string{`f:1:16: drain_timeout: "999999999h" is no duration: write it like 200ms, 2s or 24h`}},
		{"size", "record:\n  max_bytes: 256MB\n", []string{`f:2:14: record.max_bytes: "256MB" is no size: write it like 256MiB, 1GiB or a number of bytes`}},
		{"size is a fraction", "record: {max_bytes: 1e9}\n", []string{"f:1:21: record.max_bytes: this is the number 1e9, and a size is meant: write it like 256MiB, 1GiB or a number of bytes"}},
		{"size out of range", "record: {max_bytes: 1000}\n", []string{"f:1:21: record.max_bytes: 1000 is out of range: give 1MiB to 1TiB"}},
		{"choice", "log: {level: verbose, format: false}\n", []string{
			`f:1:14: log.level: "verbose" is not known: say debug, info, warn or error`,
			"f:1:31: log.format: this is false, true or false, and text or json is meant: write it like text",
		}},
		{"no list", "watch: {ports: 8000, cgroups: /a}\n", []string{
			"f:1:16: watch.ports: this is the number 8000, and a list is meant: write it like [8000, 8080]",
			`f:1:31: watch.cgroups: this is the text "/a", and a list is meant: write it like [/system.slice/vllm.service]`,
		}},
		{"ports", "watch:\n  ports:\n    - 8000\n    - 0\n    - 65536\n    - -1\n    - 0x1F\n    - 010\n    - 80.5\n    - http\n    - \"8080\"\n    - 8000\n    - 99999999999999999999\n", []string{
			"f:4:7: watch.ports[1]: 0 is out of range: a TCP port is a number from 1 to 65535",
			"f:5:7: watch.ports[2]: 65536 is out of range: a TCP port is a number from 1 to 65535",
			"f:6:7: watch.ports[3]: -1 is out of range: a TCP port is a number from 1 to 65535",
			"f:7:7: watch.ports[4]: 0x1F is no port number: write it in decimal digits, like 8000",
			"f:8:7: watch.ports[5]: 010 is no port number: write it in decimal digits, like 8000",
			"f:9:7: watch.ports[6]: 80.5 is no port number: write it in decimal digits, like 8000",
			`f:10:7: watch.ports[7]: this is the text "http", and a port number is meant: write it like 8000`,
			`f:11:7: watch.ports[8]: this is the text "8080", and a port number is meant: write it like 8000`,
			"f:12:7: watch.ports[9]: 8000 is in the list already, as [0]: name it once",
			"f:13:7: watch.ports[10]: 99999999999999999999 is out of range: a TCP port is a number from 1 to 65535",
		}},
		{"words", "user: 65534\nlisten: \"9766\"\nsocket:\n  path: agent.sock\n  group: {}\nweb_config: 2026-01-02\n", []string{
			`f:1:7: user: this is the number 65534, and a user's name or number other than root is meant: if it is meant, put it in quotes: "65534"`,
			`f:2:9: listen: "9766" is no address: give an address host:port like ":9766"`,
			`f:4:9: socket.path: "agent.sock" does not begin with /: give an absolute path like /run/velo-agent/agent.sock`,
			"f:5:10: socket.group: this is a section of keys, and a group's name or number is meant: write it like monitoring",
			`f:6:13: web_config: this is the date 2026-01-02, and an absolute path is meant: if it is meant, put it in quotes: "2026-01-02"`,
		}},
		{"nothing watched", "watch:\n  engines: false\n", []string{"f:2:12: watch.engines: nothing would be watched: set it to true, or name watch.ports or watch.cgroups"}},
		{"keep and every", "record:\n  every: 1h\n  keep: 5m\n", []string{"f:3:9: record.keep: 5m is shorter than record.every, 1h: keep snapshots at least until the next one is taken"}},
		{"plane nowhere", "plane: {enabled: true, listen: ''}\n", []string{"f:1:32: plane.listen: the plane would listen nowhere: set it, or plane.socket"}},
		{"plane advertised nowhere", "plane: {enabled: true, listen: '', socket: /s, advertise: '192.0.2.5:1'}\n", []string{"f:1:59: plane.advertise: there is no plane.listen that peers could reach by it: set plane.listen, or leave this one out"}},
		{"plane advertised", "plane: {advertise: 'node-7:9767'}\n", []string{`f:1:20: plane.advertise: "node-7:9767" is no IP address and port: give an IP address and port like "192.0.2.5:9767"`}},
		{"plane advertised at no port", "plane: {advertise: '192.0.2.5:0'}\n", []string{`f:1:20: plane.advertise: "192.0.2.5:0" has port 0: give an IP address and port like "192.0.2.5:9767"`}},
		{"plane advertised everywhere", "plane: {advertise: '[::]:9767'}\n", []string{`f:1:20: plane.advertise: "[::]:9767" has an IP address that nobody else can dial: give an IP address and port like "192.0.2.5:9767"`}},
		{"plane half TLS", "plane: {enabled: true, tls_cert: /c}\n", []string{
			"f:1:34: plane.tls_cert: mutual TLS needs all of plane.tls_cert, plane.tls_key and plane.tls_ca: set all three, or none",
			"f:1:34: plane.tls_cert: no peer would be let in: name who may be which instance, as IDENTITY=INSTANCE",
		}},
		{"number", "plane: {window: 0, heartbeat: 1ms}\n", []string{
			"f:1:17: plane.window: 0 is out of range: give 1 to 65535",
			"f:1:31: plane.heartbeat: 1ms is out of range: give 200ms to 1m",
		}},
		{"no number", "plane: {window: 1.5}\n", []string{"f:1:17: plane.window: 1.5 is no number of this range: give 1 to 65535, in decimal digits"}},
		{"identity", "plane: {tls_allow: [a, 'b=c', 'd=*']}\n", []string{
			`f:1:21: plane.tls_allow[0]: "a" is not IDENTITY=INSTANCE, the instance a UUID or *: give an identity and an instance like spiffe://cluster/worker=*`,
			`f:1:24: plane.tls_allow[1]: "b=c" is not IDENTITY=INSTANCE, the instance a UUID or *: give an identity and an instance like spiffe://cluster/worker=*`,
		}},
		{"tabs", "log:\n\tlevel: info\n  \tformat: text\n\t\n", []string{
			"f:2:1: a tab indents the line: indent with spaces",
			"f:3:3: a tab indents the line: indent with spaces",
			"f:4:1: a tab indents the line: indent with spaces",
		}},
		{"second document", "user: a\n---\nuser: b\n", []string{"f:2:1: a second document begins here: a file holds one: put more into files of the drop-in directory"}},
		{"anchor and alias", "watch: &w {cgroups: [/a]}\nlog: *w\n", []string{
			"f:1:8: anchors and aliases are not read: write the value out",
			"f:2:6: anchors and aliases are not read: write the value out",
		}},
		{"alias of nothing", "user: *who\nlisten: é\n", []string{"f:1:7: anchors and aliases are not read: write the value out"}},
		{"merge", "<<: {user: a}\n", []string{"f:1:1: <<: anchors and aliases are not read: write the value out"}},
		{"tag", "user: !!str 5\n", []string{`f:1:7: the tag "!!str" is not read: write the value without it`}},
		{"not UTF-8", "user: a\nlisten: é\xff\n", []string{"f:2:10: the byte 0xff is not UTF-8: save the file as UTF-8"}},
		{"UTF-16", "\xff\xfeu\x00", []string{"f:1:1: the byte 0xff is not UTF-8: save the file as UTF-8"}},
		{"control character", "user: é\x00\n", []string{`f:1:8: there is a control character (U+0000): delete it`}},
		{"old Mac's line end", "user: a\rlisten: b\r", []string{`f:1:8: there is a control character (U+000D): delete it`}},
		{"too many values", strings.Repeat("a,", mostMarks+1), []string{"f:1:1: the file has 100001 signs that begin or end values: a configuration needs fewer than 100000"}},

		{"indentation", "watch:\n  engines: true\n ports: [1]\n", []string{"f:3:2: this is not YAML: did not find expected key" + notYAML}},
		{"two colons", "user: a\nlisten: é: b\n", []string{"f:2:10: this is not YAML: mapping values are not allowed in this context" + notYAML}},
		{"open quote", "user: a\nlisten: \":9766\nlog: {level: info}\n", []string{"f:2:9: this is not YAML: found unexpected end of stream" + notYAML}},
		{"open bracket", "watch:\n  ports: [8000, 8080\nlisten: x\n", []string{"f:2:11: this is not YAML: did not find expected ',' or ']'" + notYAML}},
		{"reserved sign", "listen: @x\n", []string{"f:1:9: this is not YAML: found character that cannot start any token" + notYAML}},
		{"escape", "listen: \"\\q\"\n", []string{"f:1:10: this is not YAML: found unknown escape character" + notYAML}},
		{"deep", strings.Repeat("- ", 20_000), []string{"f:1:20001: this is not YAML: exceeded max depth of 10000" + notYAML}},
	} {
		t.Run(c.name, func(t *testing.T) {
			conf, err := loadText(c.text)
			if conf != nil {
				t.Errorf("a configuration came with %v", err)
			}
			if got, want := fmt.Sprint(err), strings.Join(c.want, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// What looks odd and is right.
func TestAccepted(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "comment": "# a\n", "dashes": "---\n", "end": "user: a\n...\n", "braces": "{}",
		"byte order mark": "\ufeffuser: a\n", "Windows": "user: a\r\nlog:\r\n  level: info\r\n",
		"quoted key": "'user': \"a\"\n", "capitals": "probes: {enabled: TRUE}\n", "compound": "drain_timeout: 1m30s\n",
		"bytes": "record: {max_bytes: 1048576}\n", "tab behind": "user: a\t# who\n", "directive": "%YAML 1.1\n---\nuser: a\n",
		"one port": "watch: {engines: false, ports: [1]}\n", "replacement character": "record: {dir: /\ufffd}\n",
	} {
		if _, err := loadText(text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestManyProblems(t *testing.T) {
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, "unknown%d: 1\n", i)
	}
	_, err := loadText(b.String())
	if err == nil || strings.Count(err.Error(), "\n") != mostProblems || !strings.HasSuffix(err.Error(), "\nand 900 more") {
		t.Errorf("got %v", err)
	}
}
