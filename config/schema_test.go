// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// accepts walks a value along a schema; it knows the keywords that ours uses.
func accepts(at string, schema map[string]any, v any) []string {
	var wrong []string
	fail := func(format string, args ...any) { wrong = append(wrong, at+": "+fmt.Sprintf(format, args...)) }
	for keyword, want := range schema {
		switch keyword {
		case "$schema", "title", "description", "default":
		case "type":
			names, several := want.([]any)
			if !several {
				names = []any{want}
			}
			if !slices.ContainsFunc(names, func(n any) bool { return isType(v, n.(string)) }) {
				fail("%v is no %v", v, want)
			}
		case "enum":
			if !slices.Contains(want.([]any), v) {
				fail("%v is none of %v", v, want)
			}
		case "pattern":
			if s, ok := v.(string); ok && !regexp.MustCompile(want.(string)).MatchString(s) {
				fail("%q does not match %v", s, want)
			}
		case "maxLength":
			if s, ok := v.(string); ok && len([]rune(s)) > int(want.(float64)) {
				fail("%q is longer than %v", s, want)
			}
		case "minimum":
			if n, ok := v.(float64); ok && n < want.(float64) {
				fail("%v is below %v", n, want)
			}
		case "maximum":
			if n, ok := v.(float64); ok && n > want.(float64) {
				fail("%v is above %v", n, want)
			}
		case "maxItems":
			if l, ok := v.([]any); ok && len(l) > int(want.(float64)) {
				fail("%d items, and %v are the most", len(l), want)
			}
		case "uniqueItems":
			l, _ := v.([]any)
			for i := range l {
				if slices.Contains(l[:i], l[i]) {
					fail("%v is there twice", l[i])
				}
			}
		case "items":
			l, _ := v.([]any)
			for i, item := range l {
				wrong = append(wrong, accepts(fmt.Sprintf("%s[%d]", at, i), want.(map[string]any), item)...)
			}
		case "properties":
			m, _ := v.(map[string]any)
			for name, sub := range want.(map[string]any) {
				if value, ok := m[name]; ok {
					wrong = append(wrong, accepts(at+"."+name, sub.(map[string]any), value)...)
				}
			}
		case "additionalProperties":
			m, _ := v.(map[string]any)
			for name := range m {
				if _, ok := schema["properties"].(map[string]any)[name]; !ok {
					fail("%s is not in the schema", name)
				}
			}
		default:
			fail("unknown keyword %s", keyword)
		}
	}
	return wrong
}

func isType(v any, name string) bool {
	switch v := v.(type) {
	case string:
		return name == "string"
	case bool:
		return name == "boolean"
	case float64:
		return name == "integer" && v == float64(int64(v))
	case []any:
		return name == "array"
	case map[string]any:
		return name == "object"
	}
	return false
}

func readSchema(t *testing.T) map[string]any {
	t.Helper()
	var schema map[string]any
	if err := json.Unmarshal(Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	return schema
}

// generic is a YAML text as encoding/json would have it.
func generic(t *testing.T, text []byte) any {
	t.Helper()
	var v any
	if err := yaml.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	v = nil
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestSchemaAcceptsWhatIsShown(t *testing.T) {
	schema := readSchema(t)
	for name, c := range map[string]*Config{"default": Default(), "changed": changed()} {
		for form, text := range map[string][]byte{"YAML": Show(c), "JSON": ShowJSON(c)} {
			for _, wrong := range accepts("", schema, generic(t, text)) {
				t.Errorf("%s, %s: %s", name, form, wrong)
			}
		}
	}
	if schema["$schema"] != "https://json-schema.org/draft/2020-12/schema" {
		t.Errorf("the draft is %v", schema["$schema"])
	}
}

// What the schema refuses, Load refuses too; and the other way round where a schema
// can tell.
func TestSchemaRefuses(t *testing.T) {
	schema := readSchema(t)
	for _, text := range []string{
		"wach: {}", "log: {levle: info}", "log: {level: verbose}", "log: text", "listen: 9766", "listen: nowhere",
		"probes: {enabled: 1}", "watch: {ports: 8000}", "watch: {ports: [0]}", "watch: {ports: [65536]}", "watch: {ports: [1.5]}",
		"watch: {ports: [1, 1]}", "watch: {cgroups: [a]}", "drain_timeout: 30", "drain_timeout: 30 s", "record: {max_bytes: 1}",
		"record: {max_bytes: 1MB}", "record: {dir: a}", "socket: {path: ''}", "user: a b", "plane: {window: 0}", "plane: {window: 65536}", "plane: {window: many}", "plane: {tls_allow: [a]}", "plane: {advertise: 'localhost:1'}", "socket: {path: /" + strings.Repeat("a", 120) + "}",
	} {
		if wrong := accepts("", schema, generic(t, []byte(text))); len(wrong) != 1 {
			t.Errorf("%s: the schema finds %d problems, want 1: %q", text, len(wrong), wrong)
		}
		if _, err := loadText(text); err == nil {
			t.Errorf("%s: Load takes it", text)
		}
	}
}

// The schema's defaults are the defaults, in every key.
func TestSchemaDefaults(t *testing.T) {
	defaults := map[string]any{}
	for name, s := range readSchema(t)["properties"].(map[string]any) {
		s := s.(map[string]any)
		if s["type"] != "object" {
			defaults[name] = s["default"]
			continue
		}
		section := map[string]any{}
		for name, s := range s["properties"].(map[string]any) {
			section[name] = s.(map[string]any)["default"]
		}
		defaults[name] = section
	}
	if want := generic(t, ShowJSON(Default())); !reflect.DeepEqual(any(defaults), want) {
		t.Errorf("got  %v\nwant %v", defaults, want)
	}
}
