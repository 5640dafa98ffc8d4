// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/velo-agent/velo-agent/config"
	"github.com/velo-agent/velo-agent/privileged"
)

// The daemon starts twice. First with the rights it was given: it makes its folders,
// opens its sockets and starts the helper. Then anew without any right, with these
// descriptors, which an environment variable names.
const (
	inheritedVar = "VELO_AGENT_INHERITED"
	// HelperVerb is the hidden verb that the helper runs under.
	HelperVerb = "helper"
)

// inherited are the descriptors of the second start; -1: there is none.
type inherited struct{ helper, pid, tcp, unix int }

func (i inherited) String() string {
	return fmt.Sprintf("%d,%d,%d,%d", i.helper, i.pid, i.tcp, i.unix)
}

// takeInherited reads and removes the variable. ok is false at the first start.
func takeInherited() (i inherited, ok bool, err error) {
	v, ok := os.LookupEnv(inheritedVar)
	if !ok {
		return i, false, nil
	}
	_ = os.Unsetenv(inheritedVar)
	if n, err := fmt.Sscanf(v, "%d,%d,%d,%d", &i.helper, &i.pid, &i.tcp, &i.unix); n != 4 {
		return i, true, fmt.Errorf("reading %s=%q: %w; it is not to be set by hand", inheritedVar, v, err)
	}
	return i, true, nil
}

// ErrRunning: another daemon answers on the socket.
var ErrRunning = errors.New("a daemon runs already")

// Launch is the first start. It returns only errors.
func Launch(c *config.Config, log *slog.Logger) error {
	id, change, err := privileged.Lookup(c.User)
	if err != nil {
		return err
	}
	i := inherited{helper: -1, tcp: -1, unix: -1}
	socket, err := openSocket(c.Socket.Path, id, change, log)
	if err != nil {
		return err
	}
	tcp, err := openTCP(c.Listen, log)
	if err != nil {
		return err
	}
	if c.Record.Enabled && change {
		if err := ownFolder(c.Record.Dir, 0o700, id); err != nil {
			log.Error("making the folder of the record", "error", err)
		}
	}
	if c.Probes.Enabled {
		if i.helper, i.pid, err = startHelper(c); err != nil {
			return err
		}
	}
	// Only now, so that the helper has none of the listeners.
	if i.unix, err = inherit(socket); err != nil {
		return err
	}
	if i.tcp, err = inherit(tcp); err != nil {
		return err
	}
	return privileged.Become(id, change, os.Args, append(os.Environ(), inheritedVar+"="+i.String()))
}

func startHelper(c *config.Config) (fd, pid int, err error) {
	cmd := exec.Command("/proc/self/exe", HelperVerb, "--log-level", c.Log.Level, "--log-format", c.Log.Format)
	cmd.Args[0] = os.Args[0]
	cmd.Stderr, cmd.Dir = os.Stderr, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the terminal's ^C is for the daemon
	f, err := privileged.Spawn(cmd)
	if err != nil {
		return -1, 0, err
	}
	fd, err = privileged.Inherit(f)
	return fd, cmd.Process.Pid, err
}

// openSocket listens on the Unix socket; nil: it will not be served. Who may ask is
// decided by the peer's credentials.
func openSocket(path string, id privileged.Identity, change bool, log *slog.Logger) (*os.File, error) {
	if path == "" {
		return nil, nil
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return nil, fmt.Errorf("%w: it answers on %s; stop it first, or give this one another socket.path", ErrRunning, path)
	}
	folder := filepath.Dir(path)
	var err error
	if change {
		err = ownFolder(folder, 0o755, id)
	} else {
		err = os.MkdirAll(folder, 0o755)
	}
	if err == nil {
		err = removeSocket(path)
	}
	if err != nil {
		return withoutSocket(path, err, log)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return withoutSocket(path, err, log)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o666); err != nil {
		return withoutSocket(path, err, log)
	}
	if change {
		if err := os.Lchown(path, id.UID, id.GID); err != nil {
			return withoutSocket(path, err, log)
		}
	}
	return fileOf(l.(*net.UnixListener))
}

// removeSocket removes what an earlier daemon left, and nothing else.
func removeSocket(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there and no socket: give the daemon another socket.path", path)
	}
	return os.Remove(path)
}

func withoutSocket(path string, err error, log *slog.Logger) (*os.File, error) {
	log.Error("the daemon will not answer verbs on this node", "socket", path, "error", err)
	return nil, nil
}

// ownFolder makes a folder for the daemon's user. One that is there already goes to
// that user only while it is empty, like a volume: others may be /run or /tmp.
func ownFolder(path string, mode fs.FileMode, id privileged.Identity) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	err := os.Mkdir(path, mode)
	if errors.Is(err, fs.ErrExist) {
		info, serr := os.Stat(path)
		entries, rerr := os.ReadDir(path)
		if err = errors.Join(serr, rerr); err == nil && (len(entries) > 0 || info.Mode()&0o002 != 0) {
			return nil
		}
	}
	if err != nil {
		return err
	}
	return os.Chown(path, id.UID, id.GID)
}

// openTCP listens with the rights of the first start; where the port is in use, the
// second goes on trying, unless it needs a right for it.
func openTCP(address string, log *slog.Logger) (*os.File, error) {
	if address == "" {
		return nil, nil
	}
	l, err := listenTCP(context.Background(), address)
	if err != nil {
		log.Error("metrics are not served yet; trying again", "listen", address, "error", err)
		return nil, nil
	}
	return fileOf(l.(*net.TCPListener))
}

// listenTCP listens without MPTCP: whoever scrapes has no use for it.
func listenTCP(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	return lc.Listen(ctx, "tcp", address)
}

func fileOf(l interface{ File() (*os.File, error) }) (*os.File, error) {
	f, err := l.File()
	if err != nil {
		return nil, fmt.Errorf("passing a listener on: %w", err)
	}
	return f, nil
}

// inherit passes a file on at exec; -1: there is none.
func inherit(f *os.File) (int, error) {
	if f == nil {
		return -1, nil
	}
	return privileged.Inherit(f)
}

// Inherited says whether this is the second start, and removes what told so.
func Inherited() (*Second, error) {
	i, ok, err := takeInherited()
	if err != nil || !ok {
		return nil, err
	}
	return &Second{i}, nil
}

// Second is the second start: what the first left open.
type Second struct{ fds inherited }

// thrift makes the collector run early: a node's memory is for its models, and what
// is garbage here is made once a reading.
func thrift(percent int) { debug.SetGCPercent(percent) }

// Serve is the daemon without rights, from start to end.
func (s *Second) Serve(ctx context.Context, p *Parts, reload <-chan os.Signal) error {
	thrift(25)
	var err error
	if p.TCP, err = listenerOf(s.fds.tcp); err != nil {
		return err
	}
	if p.Unix, err = listenerOf(s.fds.unix); err != nil {
		return err
	}
	if p.Source, err = s.source(ctx, p); err != nil {
		return err
	}
	return Run(ctx, p, reload)
}

func listenerOf(fd int) (net.Listener, error) {
	if fd < 0 {
		return nil, nil
	}
	syscall.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("using the inherited listener %d: %w", fd, err)
	}
	return l, nil
}

// source opens the session: in the helper, or here without probes. A helper that
// fails is survived.
func (s *Second) source(ctx context.Context, p *Parts) (Source, error) {
	o := Options{
		Watch: WatchOf(p.Config), Objectives: ObjectivesOf(p.Config), Log: p.Log,
		ExactAccept: p.Config.Probes.Accept == "exact", NoContent: p.Config.Probes.Content == "none",
		NoSched: !p.Config.Probes.Scheduler, NoSendStart: !p.Config.Probes.SendStart,
	}
	if s.fds.helper < 0 {
		o.NoBPF = true
		session, err := Open(ctx, o)
		if err != nil {
			return nil, err
		}
		return InProcess(session), nil
	}
	go reap(s.fds.pid, p.Log)
	conn, err := privileged.Conn(s.fds.helper)
	if err != nil {
		return nil, err
	}
	opening, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	source, err := OpenRemote(opening, privileged.NewClient(conn), &o)
	if err != nil {
		p.Log.Error("the helper has no session: metrics without probes", "error", err)
	}
	return source, nil
}

// reap takes the helper's end, whenever it comes; without it the helper would stay in
// the list of processes.
func reap(pid int, log *slog.Logger) {
	p, err := os.FindProcess(pid)
	if err != nil {
		return
	}
	if st, err := p.Wait(); err == nil {
		log.Info("the helper ended", "pid", strconv.Itoa(pid), "status", strings.TrimSpace(st.String()))
	}
}

// RunHelper is the helper, from its first start to its end.
func RunHelper(ctx context.Context, log *slog.Logger) error {
	const again = "VELO_AGENT_HELPER"
	if os.Getenv(again) == "" {
		return privileged.RunAsHelper(os.Args, append(os.Environ(), again+"=restricted"))
	}
	conn, err := privileged.Conn(privileged.HelperFD)
	if err != nil {
		return fmt.Errorf("%w; the helper is started by `velo-agent run`, not by hand", err)
	}
	defer conn.Close()
	thrift(50)
	h := NewHelper(ctx, log)
	return errors.Join(privileged.Serve(conn, h.Verbs(), KindOf), h.Close())
}
