// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"slices"
)

// One port number may be that of many containers. Texts name the network namespace
// only where the ports that they speak of lie in more than one.

// namespaceIn names ns where all are not alone ns; "" where it need not be said or is
// not known.
func namespaceIn(all []uint64, ns uint64) string {
	if ns == 0 || !slices.ContainsFunc(all, func(other uint64) bool { return other != ns }) {
		return ""
	}
	return fmt.Sprintf("network namespace %d", ns)
}

// namespaces are those of the ports; the sum of those beyond the budget has none.
func (m *Measured) namespaces() (all []uint64) {
	for i := range m.Ports {
		if p := &m.Ports[i]; p.Port != 0 {
			all = append(all, p.NetNS)
		}
	}
	return all
}

func (r *Report) namespaces() (all []uint64) {
	for i := range r.Ports {
		if p := &r.Ports[i]; p.Port != 0 {
			all = append(all, p.NetNS)
		}
	}
	return all
}

func (d *Diff) namespaces() (all []uint64) {
	for i := range d.Ports {
		if p := &d.Ports[i]; p.Port != 0 {
			all = append(all, p.NetNS)
		}
	}
	return all
}
