// SPDX-License-Identifier: Apache-2.0

package config

import "fmt"

// Validate returns an [*Error] with all that is wrong with c, or nil. What [Load]
// and [Default] return is valid.
func (c *Config) Validate() error {
	e := new(Error)
	for i := range keys {
		k := &keys[i]
		k.kind.check(k.get(c), func(item int, f fault) {
			e.add(Problem{Key: k.item(item), What: f.what, Remedy: f.remedy})
		})
	}
	for _, m := range c.mismatches() {
		e.add(Problem{Key: m.keys[0], What: m.what, Remedy: m.remedy})
	}
	return e.orNil()
}

func (k *key) item(i int) string {
	if i < 0 {
		return k.name
	}
	return fmt.Sprintf("%s[%d]", k.name, i)
}

// mismatch is values that are right by themselves but not together.
type mismatch struct {
	keys []string // the first is the one to change
	fault
}

func (c *Config) mismatches() []mismatch {
	var found []mismatch
	if !c.Watch.Engines && len(c.Watch.Ports)+len(c.Watch.Cgroups) == 0 {
		found = append(found, mismatch{[]string{"watch.engines", "watch.ports", "watch.cgroups"}, fault{
			"nothing would be watched", "set it to true, or name watch.ports or watch.cgroups",
		}})
	}
	if c.Record.Keep < c.Record.Every {
		found = append(found, mismatch{[]string{"record.keep", "record.every"}, fault{
			fmt.Sprintf("%s is shorter than record.every, %s", formatDuration(c.Record.Keep), formatDuration(c.Record.Every)),
			"keep snapshots at least until the next one is taken",
		}})
	}
	return append(found, c.Plane.mismatches()...)
}

func (p *Plane) mismatches() (found []mismatch) {
	if !p.Enabled {
		return nil
	}
	if p.Listen == "" && p.Socket == "" {
		found = append(found, mismatch{[]string{"plane.listen", "plane.socket"}, fault{
			"the plane would listen nowhere", "set it, or plane.socket",
		}})
	}
	if p.Listen == "" && p.Advertise != "" {
		found = append(found, mismatch{[]string{"plane.advertise", "plane.listen"}, fault{
			"there is no plane.listen that peers could reach by it", "set plane.listen, or leave this one out",
		}})
	}
	if some := p.TLSCert != "" || p.TLSKey != "" || p.TLSCA != ""; some && (p.TLSCert == "" || p.TLSKey == "" || p.TLSCA == "") {
		found = append(found, mismatch{[]string{"plane.tls_cert", "plane.tls_key", "plane.tls_ca"}, fault{
			"mutual TLS needs all of plane.tls_cert, plane.tls_key and plane.tls_ca", "set all three, or none",
		}})
	}
	if p.TLSCert != "" && len(p.TLSAllow) == 0 {
		found = append(found, mismatch{[]string{"plane.tls_allow", "plane.tls_cert"}, fault{
			"no peer would be let in", "name who may be which instance, as IDENTITY=INSTANCE",
		}})
	}
	return found
}
