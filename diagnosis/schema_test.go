// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const schemaFile = "../docs/report.schema.json"

func readSchema(t *testing.T) map[string]any {
	t.Helper()
	raw, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(raw, &schema); err != nil {
		t.Fatal(err)
	}
	return schema
}

// checker validates against the part of JSON Schema 2020-12 that the report's
// schema uses. A keyword that it does not know is an error, so that the schema
// cannot ask for something that no test looks at.
type checker struct {
	root   map[string]any
	errors []string
}

func (c *checker) fail(at, format string, args ...any) {
	c.errors = append(c.errors, at+": "+fmt.Sprintf(format, args...))
}

func (c *checker) check(at string, schema map[string]any, v any) {
	for keyword, want := range schema {
		switch keyword {
		case "$schema", "$id", "$defs", "title", "description":
		case "$ref":
			c.check(at, c.def(want.(string)), v)
		case "const":
			if v != want {
				c.fail(at, "is %v, not %v", v, want)
			}
		case "enum":
			if !slices.Contains(want.([]any), v) {
				c.fail(at, "%v is none of %v", v, want)
			}
		case "type":
			if !isType(v, want.(string)) {
				c.fail(at, "%v is no %s", v, want)
			}
		case "minimum":
			if n, ok := v.(float64); ok && n < want.(float64) {
				c.fail(at, "%v is below %v", n, want)
			}
		case "maximum":
			if n, ok := v.(float64); ok && n > want.(float64) {
				c.fail(at, "%v is above %v", n, want)
			}
		case "pattern":
			if s, ok := v.(string); ok && !regexp.MustCompile(want.(string)).MatchString(s) {
				c.fail(at, "%q does not match %v", s, want)
			}
		case "required":
			for _, name := range want.([]any) {
				if _, ok := v.(map[string]any)[name.(string)]; !ok {
					c.fail(at, "%v is not there", name)
				}
			}
		case "properties":
			props := want.(map[string]any)
			for name, value := range v.(map[string]any) {
				if sub, ok := props[name]; ok {
					c.check(at+"."+name, sub.(map[string]any), value)
				} else {
					// The schema is open for readers, not for us.
					c.fail(at, "%s is not in the schema", name)
				}
			}
		case "additionalProperties":
			for name, value := range v.(map[string]any) {
				c.check(at+"."+name, want.(map[string]any), value)
			}
		case "items":
			for i, value := range v.([]any) {
				c.check(fmt.Sprintf("%s[%d]", at, i), want.(map[string]any), value)
			}
		default:
			c.fail(at, "unknown keyword %s", keyword)
		}
	}
}

func (c *checker) def(ref string) map[string]any {
	name := strings.TrimPrefix(ref, "#/$defs/")
	return c.root["$defs"].(map[string]any)[name].(map[string]any)
}

func isType(v any, name string) bool {
	switch v := v.(type) {
	case string:
		return name == "string"
	case bool:
		return name == "boolean"
	case float64:
		return name == "number" || name == "integer" && v == float64(int64(v))
	case []any:
		return name == "array"
	case map[string]any:
		return name == "object"
	}
	return false
}

func TestReportsFollowTheSchema(t *testing.T) {
	schema := readSchema(t)
	for _, c := range append(goldens, golden{"hostile", hostile}) {
		var b bytes.Buffer
		if err := WriteJSON(&b, Build(c.measured())); err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(b.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		check := &checker{root: schema}
		check.check(c.name, schema, v)
		for _, e := range check.errors {
			t.Error(e)
		}
	}
}

// The checker finds what is wrong, or the test above says nothing.
func TestCheckerRefuses(t *testing.T) {
	schema := readSchema(t)
	for _, change := range []func(m map[string]any){
		func(m map[string]any) { delete(m, "node") },
		func(m map[string]any) { m["schema"] = "velo-agent.report.v0" },
		func(m map[string]any) { m["window_s"] = "10" },
		func(m map[string]any) { m["window_s"] = -1.0 },
		func(m map[string]any) { m["ports"].([]any)[0].(map[string]any)["port"] = 70000.0 },
		func(m map[string]any) { m["ports"].([]any)[0].(map[string]any)["port"] = 8000.5 },
		func(m map[string]any) { m["ports"].([]any)[0].(map[string]any)["novelty"] = 1.0 },
		func(m map[string]any) { m["findings"].([]any)[0].(map[string]any)["severity"] = "fatal" },
	} {
		raw, _ := json.Marshal(Build(healthy()))
		var v map[string]any
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatal(err)
		}
		change(v)
		check := &checker{root: schema}
		check.check("report", schema, v)
		if len(check.errors) != 1 {
			t.Errorf("%d errors, want 1: %v", len(check.errors), check.errors)
		}
	}
}

// Every field of Report is in the schema and every property of the schema is a
// field, with the same opinion on which of them are always there.
func TestSchemaAndReportHaveTheSameFields(t *testing.T) {
	c := &checker{root: readSchema(t)}
	c.compare("report", c.root, reflect.TypeFor[Report]())
	for _, e := range c.errors {
		t.Error(e)
	}
}

func (c *checker) compare(at string, schema map[string]any, typ reflect.Type) {
	for schema["$ref"] != nil {
		schema = c.def(schema["$ref"].(string))
	}
	switch typ.Kind() {
	case reflect.Pointer:
		c.compare(at, schema, typ.Elem())
	case reflect.Slice:
		c.compare(at+"[]", schema["items"].(map[string]any), typ.Elem())
	case reflect.Map:
		c.compare(at+".*", schema["additionalProperties"].(map[string]any), typ.Elem())
	case reflect.Struct:
		props, _ := schema["properties"].(map[string]any)
		required, _ := schema["required"].([]any)
		var fields []string
		for i := range typ.NumField() {
			name, options, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			fields = append(fields, name)
			if sub, ok := props[name]; ok {
				c.compare(at+"."+name, sub.(map[string]any), typ.Field(i).Type)
			} else {
				c.fail(at, "%s is not in the schema", name)
			}
			if always := options == ""; always != slices.Contains(required, any(name)) {
				c.fail(at, "%s: required in the schema and always written differ", name)
			}
		}
		for name := range props {
			if !slices.Contains(fields, name) {
				c.fail(at, "%s is in the schema alone", name)
			}
		}
	}
}
