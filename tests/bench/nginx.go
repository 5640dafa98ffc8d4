// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const nginxConf = `daemon off;
master_process off;
user root;
pid DIR/pid;
error_log DIR/err;
events { worker_connections 1024; }
http {
	access_log off;
	sendfile on;
	keepalive_requests 4294967295;
	client_body_temp_path DIR/body;
	proxy_temp_path DIR/proxy;
	fastcgi_temp_path DIR/fastcgi;
	uwsgi_temp_path DIR/uwsgi;
	scgi_temp_path DIR/scgi;
	server { listen ADDR; root DIR; }
}
`

// Nginx is Debian's nginx with one process that serves one small file.
type Nginx struct {
	Addr string
	Port uint16
	PID  int

	dir string
	cmd *exec.Cmd
}

// StartNginx starts it; the error says where to get it.
func StartNginx() (*Nginx, error) {
	exe, err := exec.LookPath("nginx")
	if err != nil {
		exe, err = exec.LookPath("/usr/sbin/nginx") // not in everybody's PATH
	}
	if err != nil {
		return nil, fmt.Errorf("looking for nginx (apt-get install nginx-light): %w", err)
	}
	dir, err := os.MkdirTemp("", "bench-nginx-")
	if err != nil {
		return nil, fmt.Errorf("making nginx's folder: %w", err)
	}
	n := &Nginx{dir: dir}
	if err := n.start(exe); err != nil {
		said, _ := os.ReadFile(filepath.Join(dir, "err"))
		n.Stop()
		return nil, fmt.Errorf("starting nginx: %w (it said: %s)", err, said)
	}
	return n, nil
}

func (n *Nginx) start(exe string) error {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	n.Addr, n.Port = l.Addr().String(), uint16(l.Addr().(*net.TCPAddr).Port)
	if err := l.Close(); err != nil { // nginx cannot choose a free port by itself
		return err
	}
	if err := os.Chmod(n.dir, 0o755); err != nil {
		return err
	}
	conf := strings.NewReplacer("DIR", n.dir, "ADDR", n.Addr).Replace(nginxConf)
	if err := os.WriteFile(filepath.Join(n.dir, "conf"), []byte(conf), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(n.dir, "small"), make([]byte, 1024), 0o644); err != nil {
		return err
	}
	n.cmd = exec.Command(exe, "-e", n.dir+"/err", "-p", n.dir, "-c", n.dir+"/conf")
	if err := n.cmd.Start(); err != nil {
		return err
	}
	n.PID = n.cmd.Process.Pid
	for range 300 {
		c, err2 := net.Dial("tcp4", n.Addr)
		if err = err2; err == nil {
			return c.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// Stop ends it and removes its folder.
func (n *Nginx) Stop() {
	if n.cmd != nil && n.cmd.Process != nil {
		n.cmd.Process.Kill()
		n.cmd.Wait()
	}
	os.RemoveAll(n.dir)
}
