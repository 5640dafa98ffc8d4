// SPDX-License-Identifier: Apache-2.0

package victims

import (
	"context"
	_ "embed"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
	"time"
)

//go:embed nginx/nginx.conf.tmpl
var nginxConf string

// A front is an nginx before the Go victim.
type front struct {
	exe, dir, upstream, addr string
	port                     int
}

func newFront(ctx context.Context, dir, host string, cfg Config) (*front, error) {
	exe, err := nginxPath(ctx)
	if err != nil {
		return nil, fmt.Errorf("looking for nginx: %w", err)
	}
	port, err := freePort(host)
	if err != nil {
		return nil, err
	}
	f := &front{exe: exe, dir: dir, upstream: filepath.Join(dir, "engine"), port: port}
	f.addr = net.JoinHostPort(host, strconv.Itoa(port))
	listen := f.addr
	if cfg.Network == "tcp" {
		listen += " ipv6only=off"
	}
	conf, err := os.Create(f.conf())
	if err != nil {
		return nil, fmt.Errorf("writing nginx.conf: %w", err)
	}
	defer conf.Close()
	t := template.Must(template.New("nginx.conf").Parse(nginxConf))
	err = t.Execute(conf, map[string]any{
		"CPU": cfg.CPU, "Mask": "1" + strings.Repeat("0", max(0, cfg.CPU)), "Root": os.Geteuid() == 0,
		"Dir": dir, "Upstream": f.upstream, "Listen": listen, "SndBuf": cfg.SndBuf,
	})
	if err != nil {
		return nil, fmt.Errorf("writing nginx.conf: %w", err)
	}
	return f, nil
}

func (f *front) conf() string { return filepath.Join(f.dir, "nginx.conf") }

func (f *front) command() string {
	return fmt.Sprintf("%s -e %s/nginx.err -p %s -c %s", f.exe, f.dir, f.dir, f.conf())
}

// freePort returns a port that was free a moment ago: nginx cannot choose one.
func freePort(host string) (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return 0, fmt.Errorf("looking for a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// wait returns nginx's port and the pid of its worker once it listens.
func (f *front) wait(ctx context.Context) (port, pid int, err error) {
	for range 500 {
		if pid, err = f.worker(); err == nil {
			var c net.Conn
			if c, err = net.Dial("tcp", f.addr); err == nil {
				return f.port, pid, c.Close()
			}
		}
		select {
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	said, _ := os.ReadFile(filepath.Join(f.dir, "nginx.err"))
	return 0, 0, fmt.Errorf("waiting for nginx: %w: %s", err, said)
}

// worker returns the pid of the master's only child.
func (f *front) worker() (int, error) {
	b, err := os.ReadFile(filepath.Join(f.dir, "nginx.pid"))
	if err != nil {
		return 0, err
	}
	master := strings.TrimSpace(string(b))
	children, err := os.ReadFile(filepath.Join("/proc", master, "task", master, "children"))
	if err != nil {
		return 0, err
	}
	for child := range strings.FieldsSeq(string(children)) {
		return strconv.Atoi(child)
	}
	return 0, fmt.Errorf("nginx %s has no worker yet", master)
}
