// SPDX-License-Identifier: Apache-2.0

package diagnosis

import "fmt"

// fdExhausted: accept fails with EMFILE. One failure is enough: the connection
// stays in the queue and the loop spins on it (Dynamo #11801).
var fdExhausted = rule{
	id:   "fd_exhausted",
	docs: "docs/findings.md#fd_exhausted",
	when: "accept failed at least once with EMFILE",
	port: func(v *view) *Finding {
		a := v.p.Accept
		if a == nil || !positive(a.EMFILE) {
			return nil
		}
		return &Finding{
			Severity: Critical,
			Title:    fmt.Sprintf("The server on %s is out of file descriptors: accept failed %s", v.name(), counted(*a.EMFILE, "time", "times")),
			Evidence: append([]string{fmt.Sprintf("accept returned EMFILE %s in %s", counted(*a.EMFILE, "time", "times"), span(v.m.Window))},
				queueFigures(v)...),
			Remedy: "Raise the limit of open files of that process (LimitNOFILE= of its unit, --ulimit nofile of its container) " +
				"and look for connections that it does not close. The engine never saw these requests.",
		}
	},
}
