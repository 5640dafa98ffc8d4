// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxText bounds a string of the report in bytes. The longest of our own sentences
// are far below it; what others wrote (a command line, a cgroup path) is cut.
const maxText = 1024

// clean makes a string that others chose, such as a process name, harmless on a
// terminal and in a log: control and format characters (escape sequences, line
// ends, changes of writing direction) and broken UTF-8 become visible escapes.
// Applied twice it changes nothing.
func clean(s string) string {
	var b strings.Builder
	for i, r := range s {
		piece := string(r)
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], piece):
			piece = fmt.Sprintf("\\x%02x", s[i])
		case r < 0x100 && unicode.IsControl(r):
			piece = fmt.Sprintf("\\x%02x", r)
		case !unicode.IsPrint(r):
			piece = fmt.Sprintf("\\u%04x", r)
		}
		if b.Len()+len(piece) > maxText {
			b.WriteString("…")
			break
		}
		b.WriteString(piece)
	}
	return b.String()
}

// cleaned returns a copy of r whose every string is clean. Writers use it, so that
// a report that came from elsewhere is as harmless as one built here.
func cleaned(r *Report) *Report {
	return cleanedValue(reflect.ValueOf(r)).Interface().(*Report)
}

func cleanedValue(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.String:
		out.SetString(clean(v.String()))
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(cleanedValue(v.Elem()))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			out.Field(i).Set(cleanedValue(v.Field(i)))
		}
	case reflect.Slice:
		if !v.IsNil() {
			out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			for i := range v.Len() {
				out.Index(i).Set(cleanedValue(v.Index(i)))
			}
		}
	case reflect.Map:
		if !v.IsNil() {
			out.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
			for it := v.MapRange(); it.Next(); {
				out.SetMapIndex(cleanedValue(it.Key()), cleanedValue(it.Value()))
			}
		}
	default:
		out.Set(v)
	}
	return out
}
