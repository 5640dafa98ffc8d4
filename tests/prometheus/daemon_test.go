// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/tests/bench/daemon/live"
)

// build builds the agent as it is shipped.
func build(t *testing.T, dir string) string {
	t.Helper()
	path, err := live.Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// settings are what differs from one daemon to the next, as YAML has them.
type settings map[string]any

// text is the settings as a file has them.
func (s settings) text(t *testing.T) string {
	t.Helper()
	text, err := yaml.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// daemon is one that runs, or will.
type daemon struct {
	*live.Daemon
	conf settings // that it is started with
}

// prepareDaemon makes a daemon that keeps its files in dir.
func prepareDaemon(t *testing.T, binary, dir string, conf settings) *daemon {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := live.Prepare(binary, dir, conf.text(t))
	if err != nil {
		t.Fatal(err)
	}
	return &daemon{d, conf}
}

// start starts the daemon, which ends with the test.
func (d *daemon) start(t *testing.T) {
	t.Helper()
	if err := d.Run(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of %s ends:\n%s", filepath.Base(filepath.Dir(d.LogFile())), d.Log())
		}
		d.stop(t)
	})
}

// stop ends the daemon, if it runs.
func (d *daemon) stop(t *testing.T) {
	t.Helper()
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
}

// reload has the daemon read its configuration, as it is to be now, and waits for what it
// says.
func (d *daemon) reload(t *testing.T, conf settings, want string) {
	t.Helper()
	if err := d.Configure(conf.text(t)); err != nil {
		t.Fatal(err)
	}
	if err := d.Signal(unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, func() error {
		text, err := os.ReadFile(d.LogFile())
		if err == nil && !strings.Contains(string(text), want) {
			err = fmt.Errorf("after the reload the log does not say %q", want)
		}
		return err
	})
}

// get asks the daemon for a page that it must give.
func (d *daemon) get(t *testing.T, path string, header ...string) answer {
	t.Helper()
	a, err := get(client, d.URL+path, header...)
	if err != nil {
		t.Fatal(err)
	}
	if a.status != http.StatusOK {
		t.Fatalf("%s: %d %s", path, a.status, a.body)
	}
	return a
}
