// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/plane/wire"
)

var (
	// ErrDamaged: the discovery file is not what velo writes.
	ErrDamaged = errors.New("damaged discovery file")
	// ErrRegistered: the instance is in the file already.
	ErrRegistered = errors.New("already registered")
)

const (
	maxFile  = 16 << 20 // bytes
	maxPeers = 65_536
	lockWait = 5 * time.Second
	lockLook = 5 * time.Millisecond // between two looks at a lock that is held
)

// File is velo's discovery by a JSON file that all nodes read and write. It is read
// again for each question, under a shared lock; writers hold an exclusive one and put a
// new file in its place.
//
// velo's own nodes read the file before they take the lock, so one that registers at the
// same moment may drop another's entry.
type File struct{ path string }

// NewFile uses the file at the path, which the first Register makes.
func NewFile(path string) *File { return &File{path} }

type registry struct {
	Peers []entry `json:"peers"`
}

type entry struct {
	Instance wire.InstanceID `json:"instance_id"`
	Worker   *uint64         `json:"worker_id"` // 0: not said
	Address  wire.Address    `json:"worker_address"`
	Checksum *uint64         `json:"address_checksum"` // 0: not said
}

// ByWorker implements Discovery.
func (f *File) ByWorker(ctx context.Context, w wire.WorkerID) (wire.PeerInfo, error) {
	return f.find(ctx, fmt.Sprintf("worker %d", uint64(w)), func(e entry) bool { return e.Instance.Worker() == w })
}

// ByInstance implements Discovery.
func (f *File) ByInstance(ctx context.Context, id wire.InstanceID) (wire.PeerInfo, error) {
	return f.find(ctx, "instance "+id.String(), func(e entry) bool { return e.Instance == id })
}

func (f *File) find(ctx context.Context, what string, is func(entry) bool) (wire.PeerInfo, error) {
	r, err := f.read(ctx)
	if err != nil {
		return wire.PeerInfo{}, fmt.Errorf("looking for %s: %w", what, err)
	}
	i := slices.IndexFunc(r.Peers, is)
	if i < 0 {
		return wire.PeerInfo{}, fmt.Errorf("looking for %s in %s: %w", what, f.path, ErrNotFound)
	}
	e := r.Peers[i]
	if sum := *e.Checksum; sum != 0 && sum != e.Address.Checksum() {
		return wire.PeerInfo{}, fmt.Errorf("looking for %s in %s: %w: its address does not have the checksum that stands beside it", what, f.path, ErrDamaged)
	}
	return wire.PeerInfo{Instance: e.Instance, Address: e.Address}, nil
}

// read reads the file under a shared lock; one that is not there has no peers.
func (f *File) read(ctx context.Context) (registry, error) {
	file, err := f.lock(ctx, os.O_RDONLY, unix.LOCK_SH)
	if errors.Is(err, fs.ErrNotExist) {
		return registry{}, nil
	}
	if err != nil {
		return registry{}, err
	}
	defer file.Close()
	return f.parse(file)
}

func (f *File) parse(file *os.File) (r registry, err error) {
	b, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return r, fmt.Errorf("reading the discovery file: %w", err)
	case len(b) > maxFile:
		return r, fmt.Errorf("reading %s: %w: it is larger than %d bytes", f.path, ErrDamaged, maxFile)
	case len(b) == 0:
		return r, nil // velo makes it so before it writes
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("reading %s: %w: %w", f.path, ErrDamaged, err)
	}
	switch {
	case r.Peers == nil:
		return r, fmt.Errorf("reading %s: %w: it has no list of peers", f.path, ErrDamaged)
	case len(r.Peers) > maxPeers:
		return r, fmt.Errorf("reading %s: %w: %d peers, at most %d", f.path, ErrDamaged, len(r.Peers), maxPeers)
	}
	for i, e := range r.Peers {
		if e.Instance == (wire.InstanceID{}) || e.Worker == nil || e.Address == nil || e.Checksum == nil {
			return r, fmt.Errorf("reading %s: %w: peer %d lacks instance_id, worker_id, worker_address or address_checksum", f.path, ErrDamaged, i)
		}
	}
	return r, nil
}

// lock opens the file with a lock on it. Who waited for one may hold it on a file that
// has been replaced since, and looks again.
func (f *File) lock(ctx context.Context, flags, how int) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	for {
		// Without waiting: what is there may be a pipe.
		file, err := os.OpenFile(f.path, flags|unix.O_NONBLOCK, 0o644)
		if err != nil {
			return nil, fmt.Errorf("opening the discovery file: %w", err)
		}
		current, err := f.tryLock(file, how)
		if err == nil && current {
			return file, nil
		}
		file.Close()
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, err
		}
		select {
		case <-time.After(lockLook):
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the lock on %s: %w: another process holds it", f.path, ctx.Err())
		}
	}
}

func (f *File) tryLock(file *os.File, how int) (current bool, err error) {
	opened, err := file.Stat()
	if err != nil {
		return false, fmt.Errorf("looking at the discovery file: %w", err)
	}
	if !opened.Mode().IsRegular() {
		return false, fmt.Errorf("reading %s: %w: it is no regular file", f.path, ErrDamaged)
	}
	if err := unix.Flock(int(file.Fd()), how|unix.LOCK_NB); err != nil {
		return false, fmt.Errorf("locking %s: %w", f.path, err)
	}
	there, err := os.Stat(f.path)
	return err == nil && os.SameFile(opened, there), nil
}

// Guard keeps a registration until Unregister.
type Guard struct {
	f    *File
	id   wire.InstanceID
	once sync.Once
	err  error
}

// Register adds a node to the file. ErrRegistered: its instance is there already.
func (f *File) Register(p wire.PeerInfo) (*Guard, error) {
	err := f.change(func(r *registry) error {
		if slices.ContainsFunc(r.Peers, func(e entry) bool { return e.Instance == p.Instance }) {
			return ErrRegistered
		}
		worker, sum := uint64(p.Instance.Worker()), p.Address.Checksum()
		r.Peers = append(r.Peers, entry{p.Instance, &worker, p.Address, &sum})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("registering %s in %s: %w", p.Instance, f.path, err)
	}
	return &Guard{f: f, id: p.Instance}, nil
}

// Unregister takes the node out of the file, once.
func (g *Guard) Unregister() error {
	g.once.Do(func() {
		g.err = g.f.change(func(r *registry) error {
			r.Peers = slices.DeleteFunc(r.Peers, func(e entry) bool { return e.Instance == g.id })
			return nil
		})
		if g.err != nil {
			g.err = fmt.Errorf("unregistering %s from %s: %w", g.id, g.f.path, g.err)
		}
	})
	return g.err
}

// change replaces the file by a changed one, under the exclusive lock.
func (f *File) change(how func(*registry) error) error {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
		return err
	}
	file, err := f.lock(context.Background(), os.O_RDWR|os.O_CREATE, unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer file.Close()
	r, err := f.parse(file)
	if err != nil {
		return err
	}
	if err := how(&r); err != nil {
		return err
	}
	if r.Peers == nil {
		r.Peers = []entry{} // velo refuses null
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	next := f.path + ".tmp." + uuid.NewString()
	if err := os.WriteFile(next, b, 0o644); err != nil {
		os.Remove(next)
		return fmt.Errorf("writing the new discovery file: %w", err)
	}
	if err := os.Rename(next, f.path); err != nil {
		os.Remove(next)
		return fmt.Errorf("putting the new discovery file in place: %w", err)
	}
	return nil
}
