// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// TLSFiles says where a node's certificate and key are, who signs its peers', and which
// peer may be which instance. All files are PEM.
type TLSFiles struct {
	Cert, Key, CA string
	// Allow maps an identity, a URI (SPIFFE), a DNS name or a common name of the
	// peer's certificate, to the instance ids that it may use; "*" stands for any.
	Allow map[string][]string
}

// AnyInstance in the allow-list lets an identity use whichever id it draws. Such a peer
// is let in, but it has proved of no instance that it is that one.
const AnyInstance = "*"

// TLS is mutual TLS 1.3: each side shows a certificate of the authority that is on the
// allow-list.
type TLS struct {
	server, client *tls.Config
	allow          map[string]workers
}

// workers are the ids that an identity may use.
type workers struct {
	any  bool
	only map[wire.WorkerID]bool
}

// Load reads the files.
func (f TLSFiles) Load() (*TLS, error) {
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate %s and its key %s: %w", f.Cert, f.Key, err)
	}
	pem, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("reading the certificates of the authority: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("reading the certificates of the authority: %s has none in PEM form", f.CA)
	}
	t := &TLS{allow: map[string]workers{}}
	for name, ids := range f.Allow {
		if t.allow[name], err = parseWorkers(ids); err != nil {
			return nil, fmt.Errorf("reading what the identity %q may use: %w", name, err)
		}
	}
	if len(t.allow) == 0 {
		return nil, errors.New("reading the allow-list: it is empty, so nobody could connect; name an identity and its instance ids, or \"*\"")
	}
	t.server = &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots,
		VerifyConnection: t.known,
	}
	t.client = &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
		// Peers are dialed by IP address and known by the allow-list, not by a host name; the
		// chain is verified below.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
			for _, c := range s.PeerCertificates[1:] {
				o.Intermediates.AddCert(c)
			}
			if _, err := s.PeerCertificates[0].Verify(o); err != nil {
				return err
			}
			return t.known(s)
		},
	}
	return t, nil
}

func parseWorkers(ids []string) (w workers, err error) {
	w.only = map[wire.WorkerID]bool{}
	for _, s := range ids {
		if s == AnyInstance {
			w.any = true
			continue
		}
		id, err := wire.ParseInstanceID(s)
		if err != nil {
			return w, err
		}
		w.only[id.Worker()] = true
	}
	return w, nil
}

// known refuses a certificate of which no identity is on the list.
func (t *TLS) known(s tls.ConnectionState) error {
	names := identities(s.PeerCertificates[0])
	if slices.ContainsFunc(names, func(n string) bool { _, ok := t.allow[n]; return ok }) {
		return nil
	}
	return fmt.Errorf("%w: none of %q is on the allow-list", ErrIdentity, names)
}

func (t *TLS) allows(names []string, w wire.WorkerID) (allowed, proved bool) {
	for _, n := range names {
		may := t.allow[n]
		proved = proved || may.only[w]
		allowed = allowed || may.any || may.only[w]
	}
	return allowed, proved
}

func namesOf(c *tls.Conn) []string { return identities(c.ConnectionState().PeerCertificates[0]) }

func identities(c *x509.Certificate) []string {
	names := slices.Clone(c.DNSNames)
	for _, u := range c.URIs {
		names = append(names, u.String())
	}
	if c.Subject.CommonName != "" {
		names = append(names, c.Subject.CommonName)
	}
	return names
}
