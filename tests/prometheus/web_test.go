// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// sesame is bcrypt's of "sesame".
const sesame = "$2a$04$T.I8Av/F9VE2kL4mhPsbie3TQbJ3DRrNO0LI3JA4xPCMIoilObfDi"

func TestWebConfig(t *testing.T) {
	dir := folder(t)
	binary := build(t, dir)
	cert, key, roots := certificate(t)
	write(t, filepath.Join(dir, "cert.pem"), cert)
	write(t, filepath.Join(dir, "key.pem"), key)
	encrypted := settings{"cert_file": "cert.pem", "key_file": "key.pem"} // relative to the file
	trusting := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots},
	}}
	for name, c := range map[string]struct {
		web    settings
		client *http.Client
		scheme string
		secret bool
	}{
		"authentication": {settings{"basic_auth_users": settings{"reader": sesame}}, client, "http", true},
		"TLS":            {settings{"tls_server_config": encrypted}, trusting, "https", false},
		"both":           {settings{"tls_server_config": encrypted, "basic_auth_users": settings{"reader": sesame}}, trusting, "https", true},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := yaml.Marshal(c.web)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, name+".yaml")
			write(t, path, string(text))
			d := prepareDaemon(t, binary, filepath.Join(dir, name), settings{
				"web_config": path, "probes": settings{"enabled": false},
			})
			d.start(t)
			ask := func(path, user, password string) (answer, error) {
				r, err := http.NewRequest(http.MethodGet, c.scheme+"://"+d.Listen+path, nil)
				if err != nil {
					return answer{}, err
				}
				if user != "" {
					r.SetBasicAuth(user, password)
				}
				return do(c.client, r)
			}
			eventually(t, 15*time.Second, func() error {
				_, err := ask("/healthz", "", "")
				return err
			})
			for _, path := range []string{"/metrics", "/healthz", "/readyz", "/api/v1/report"} {
				for who, in := range map[[2]string]bool{{}: !c.secret, {"reader", "wrong"}: !c.secret, {"other", "sesame"}: !c.secret, {"reader", "sesame"}: true} {
					a, err := ask(path, who[0], who[1])
					if err != nil {
						t.Fatal(err)
					}
					if refused := a.status == http.StatusUnauthorized; refused == in {
						t.Errorf("%s of %q is answered %d; it is to be admitted: %v", path, who, a.status, in)
					}
				}
			}
			if c.scheme == "https" {
				if a, err := get(client, "http://"+d.Listen+"/metrics"); err == nil && a.status == http.StatusOK {
					t.Error("the daemon serves metrics without TLS")
				}
				if _, err := get(client, "https://"+d.Listen+"/metrics"); err == nil {
					t.Error("a client that does not know the certificate is content")
				}
			}
		})
	}
}

// certificate makes a certificate of 127.0.0.1 and its key, as PEM.
func certificate(t *testing.T) (cert, key string, roots *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	like := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, like, like, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	cert, key = block("CERTIFICATE", der), block("EC PRIVATE KEY", secret)
	roots = x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(cert)) {
		t.Fatal(fmt.Errorf("the certificate cannot be read back"))
	}
	return cert, key, roots
}
