// SPDX-License-Identifier: Apache-2.0

package dashboards

import (
	"regexp"
	"slices"
	"strings"

	"github.com/velo-agent/velo-agent/collectors"
	"github.com/velo-agent/velo-agent/collectors/velo"
)

// A recorded series has a colon before the name, or after it, and is no family.
var name = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)

// everything is every family: the agent's, and the response plane's.
func everything() []*collectors.Family { return slices.Concat(collectors.Table, velo.Table()) }

// families are the families of the table that the expressions read, in the order in
// which they name them.
func families(exprs ...string) []*collectors.Family {
	var found []*collectors.Family
	seen := map[*collectors.Family]bool{}
	for _, expr := range exprs {
		for _, n := range name.FindAllString(expr, -1) {
			if f := family(n); f != nil && !seen[f] {
				seen[f] = true
				found = append(found, f)
			}
		}
	}
	return found
}

// family is the row of the table that a series belongs to, nil where there is none.
func family(series string) *collectors.Family {
	for _, f := range everything() {
		rest, ok := strings.CutPrefix(series, f.Name)
		switch {
		case !ok:
		case rest == "", f.Type == collectors.Histogram && (rest == "_bucket" || rest == "_sum" || rest == "_count"):
			return f
		}
	}
	return nil
}
