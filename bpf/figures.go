// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/attribution"
)

// Limits of the shared maps (bpf/include/port.h, wake.h).
const (
	MaxPorts     = 128
	MaxRoles     = 64
	MaxWatched   = 8192
	MaxAccepting = 16384
)

// WatchKey names a port of a network namespace. Remote means the sockets that
// connect to it.
type WatchKey struct {
	NetNS  uint32 // inode number of the namespace
	Port   uint16
	Remote bool
}

// Watch gives the figures of key the place index, below MaxPorts.
func (m *Maps) Watch(key WatchKey, index int) error {
	k := mapsWatchKey{Netns: key.NetNS, Port: key.Port}
	if key.Remote {
		k.Remote = 1
	}
	if err := m.collection.Maps["watch_map"].Put(&k, uint32(index)); err != nil {
		return fmt.Errorf("watching port %d: %w", key.Port, err)
	}
	return nil
}

// Unwatch ends what Watch began for key, both ends; sockets that are marked stay so.
func (m *Maps) Unwatch(key WatchKey) error {
	for remote := range uint16(2) {
		k := mapsWatchKey{Netns: key.NetNS, Port: key.Port, Remote: remote}
		if err := m.collection.Maps["watch_map"].Delete(&k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("ending to watch port %d: %w", key.Port, err)
		}
	}
	return nil
}

// ForgetPort empties the figures at index, for another port.
func (m *Maps) ForgetPort(index int) error {
	if err := m.collection.Maps["ports"].Put(uint32(index), &mapsPort{}); err != nil {
		return fmt.Errorf("emptying the figures of port index %d: %w", index, err)
	}
	return nil
}

// ForgetRole empties the figures of a thread role.
func (m *Maps) ForgetRole(index int) error {
	if err := m.collection.Maps["roles"].Put(uint32(index), &mapsRoleStats{}); err != nil {
		return fmt.Errorf("emptying the figures of role index %d: %w", index, err)
	}
	return nil
}

// OpenSockets is what the sockets of a port that are open now add up to.
type OpenSockets struct {
	Listeners                  uint64
	AcceptDepth, AcceptLimit   uint64
	AcceptOverflows            uint64 // connections refused since the listeners were marked
	Established                uint64 // connections
	RwndJiffies, SndbufJiffies uint64 // by which they were held back
}

// ForgetOpen prepares for a walk over the open sockets.
func (m *Maps) ForgetOpen() error {
	m.walks++
	empty := make([]mapsOpenSockets, MaxPorts)
	for i := range empty {
		empty[i].Walk = m.walks
	}
	if _, err := m.collection.Maps["open_map"].BatchUpdate(m.openKeys(), empty, nil); err != nil {
		return fmt.Errorf("emptying the sums of open sockets: %w", err)
	}
	return nil
}

// Open returns what the last walk found, by port index.
func (m *Maps) Open() (map[int]OpenSockets, error) {
	keys, values := make([]uint32, MaxPorts), make([]mapsOpenSockets, MaxPorts)
	var cursor ebpf.MapBatchCursor
	n, err := m.collection.Maps["open_map"].BatchLookup(&cursor, keys, values, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, fmt.Errorf("reading the sums of open sockets: %w", err)
	}
	out := map[int]OpenSockets{}
	for i := range n {
		v := values[i]
		if v.Listeners > 0 || v.Established > 0 {
			out[int(keys[i])] = OpenSockets{
				Listeners: v.Listeners, AcceptDepth: v.AcceptDepth, AcceptLimit: v.AcceptLimit, AcceptOverflows: v.AcceptOverflows,
				Established: v.Established, RwndJiffies: v.RwndJiffies, SndbufJiffies: v.SndbufJiffies,
			}
		}
	}
	return out, nil
}

func (*Maps) openKeys() []uint32 {
	keys := make([]uint32, MaxPorts)
	for i := range keys {
		keys[i] = uint32(i)
	}
	return keys
}

// ThreadName is what a thread is counted under.
type ThreadName struct {
	Role int // below MaxRoles
	Port int // where its process's EMFILE is counted
}

// NameThreads sets what the next run of the task iterator marks, and returns how
// many threads found no room.
func (m *Maps) NameThreads(names map[int]ThreadName) (beyond int, err error) {
	tm := m.collection.Maps["thread_marks"]
	for tid, n := range names {
		err := tm.Put(uint32(tid), &mapsThreadKey{Role: uint32(n.Role), Port: uint32(n.Port)})
		switch {
		case errors.Is(err, unix.E2BIG):
			beyond++
		case err != nil:
			return beyond, fmt.Errorf("naming thread %d: %w", tid, err)
		}
	}
	return beyond, nil
}

// ForgetThreads empties the list again; the marks stay.
func (m *Maps) ForgetThreads(names map[int]ThreadName) error {
	tm := m.collection.Maps["thread_marks"]
	for tid := range names {
		if err := tm.Delete(uint32(tid)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("forgetting thread %d: %w", tid, err)
		}
	}
	return nil
}

// PortFigures is what the counted tier holds of one port, since the maps were
// made. Sums of times are exact, but that a part below 1.024 µs is engine's; jiffies
// are the kernel's ticks.
type PortFigures struct {
	Connections, Exchanges            uint64
	AcceptArrivals, AcceptHighWater   uint64
	AcceptUnknown, EMFILE             uint64
	AcceptOverflows                   uint64 // of listeners that are closed
	Retransmits                       uint64
	ResetsSent, ResetsReceived        uint64
	ZeroWindows, BlockedWrites        uint64
	NagleWrites                       uint64
	EarlyAnswers                      uint64
	RwndJiffies, SndbufJiffies        uint64
	TTFT, FirstWrite, Gap, AcceptWait attribution.Histogram
	TTFTStages, GapStages             [attribution.NumStages]attribution.Histogram
	// Exchanges that missed an objective, by the stage that took most.
	TTFTMissed, GapMissed [attribution.NumStages]uint64
}

// Port reads the figures at index.
func (m *Maps) Port(index int) (*PortFigures, error) {
	f, _, err := m.PortSince(index, 0)
	return f, err
}

// PortSince reads the figures at index unless they are as they were at mark, which an
// earlier call returned (0: at none): f is nil then.
func (m *Maps) PortSince(index int, mark uint64) (f *PortFigures, now uint64, err error) {
	m.reading.Lock()
	defer m.reading.Unlock()
	p := &m.port
	if err := m.collection.Maps["ports"].Lookup(uint32(index), p); err != nil {
		return nil, 0, fmt.Errorf("reading the figures of port index %d: %w", index, err)
	}
	now = xxh3.Hash(unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(*p)))
	if now == mark {
		return nil, now, nil
	}
	return p.figures(), now, nil
}

func (p *mapsPort) figures() *PortFigures {
	f := &PortFigures{
		Connections:    p.Connections,
		AcceptArrivals: p.AcceptArrivals, AcceptHighWater: p.AcceptHighWater,
		AcceptUnknown: p.AcceptUnknown, EMFILE: p.AcceptEmfile, AcceptOverflows: p.AcceptOverflows,
		Retransmits: p.Retransmits, ResetsSent: p.ResetsSent, ResetsReceived: p.ResetsReceived,
		ZeroWindows: p.ZeroWindows, BlockedWrites: p.BlockedWrites, EarlyAnswers: p.EarlyAnswers, NagleWrites: p.NagleWrites,
		RwndJiffies: p.RwndJiffies, SndbufJiffies: p.SndbufJiffies,
		Gap: p.Gap.histogram(0), AcceptWait: p.AcceptWait.histogram(0),
	}
	f.TTFT, f.FirstWrite = p.TtftAtOnce.histogram(0), p.FirstWrite.histogram(0)
	f.FirstWrite.Merge(&f.TTFT)
	later := p.TtftLater.histogram(0)
	f.TTFT.Merge(&later)
	f.Exchanges = f.FirstWrite.Total + p.Untimed
	for s := range attribution.NumStages {
		f.TTFTStages[s] = p.TtftStages[s].histogram(f.TTFT.Total)
		f.TTFTMissed[s], f.GapMissed[s] = p.TtftMissed[s], p.GapMissed[s]
	}
	f.GapStages[attribution.Engine] = p.GapEngine.histogram(f.Gap.Total)
	f.GapStages[attribution.SendQueue] = p.GapSendQueue.histogram(f.Gap.Total)
	giveRest(&f.TTFTStages, f.TTFT.SumTime)
	giveRest(&f.GapStages, f.Gap.SumTime)
	return f
}

// giveRest sets the engine's time, whose sum the kernel does not keep, to what the
// other stages leave of the total. While exchanges end, a reading may hold one's
// total without its stages.
func giveRest(stages *[attribution.NumStages]attribution.Histogram, total time.Duration) {
	for s := range stages {
		if attribution.Stage(s) != attribution.Engine {
			total -= stages[s].SumTime
		}
	}
	stages[attribution.Engine].SumTime = max(total, 0)
}

// histogram converts; the kernel counts no part of an interval that is shorter than
// the first bucket, so these are what is missing from the expected number.
func (h *mapsHist) histogram(expected uint64) attribution.Histogram {
	out := attribution.Histogram{SumTime: time.Duration(h.Sum), MaxTime: time.Duration(h.Max)}
	if h.Max > 0 { // most are empty
		for i, n := range h.Counts {
			out.AddBucket(i, uint64(n))
		}
	}
	if expected > out.Total {
		out.AddBucket(0, expected-out.Total)
	}
	return out
}

// Accepting returns how many connections wait in the table of those whose accept is
// watched at the return of system calls.
func (m *Maps) Accepting() (int, error) {
	n, it := 0, m.collection.Maps["accepting"].Iterate()
	var key, at uint64
	for it.Next(&key, &at) {
		n++
	}
	return n, it.Err()
}

// RoleFigures is what the counted tier holds of one thread role.
type RoleFigures struct {
	Wakeups, Preemptions uint64
	Wait                 attribution.Histogram // woken or pre-empted, until it runs
}

// Role reads the figures at index.
func (m *Maps) Role(index int) (*RoleFigures, error) {
	var r mapsRoleStats
	if err := m.collection.Maps["roles"].Lookup(uint32(index), &r); err != nil {
		return nil, fmt.Errorf("reading the figures of role index %d: %w", index, err)
	}
	f := &RoleFigures{Preemptions: r.Preemptions, Wait: r.Wait.histogram(0)}
	f.Wakeups = f.Wait.Total - min(f.Preemptions, f.Wait.Total)
	return f, nil
}

// lostReasons are the names of enum lost_reason, "<place>/<reason>".
var lostReasons = []string{
	"records/ring_full", "accepting/map_full", "threads/storage", "conns/storage",
	"writes/queue_full", "wakes/collision", "stages/impossible_time", "ports/no_index",
	"writes/left_unseen",
}

// Lost reads what was lost in the kernel, by place and reason; zeros are left in.
func (m *Maps) Lost() (map[string]uint64, error) {
	out := make(map[string]uint64, len(lostReasons))
	for i, name := range lostReasons {
		var perCPU []uint64
		if err := m.collection.Maps["lost_map"].Lookup(uint32(i), &perCPU); err != nil {
			return nil, fmt.Errorf("reading what was lost (%s): %w", name, err)
		}
		for _, n := range perCPU {
			out[name] += n
		}
	}
	return out, nil
}

// ProgramCost is what one attached program has cost since the kernel's run
// statistics were switched on.
type ProgramCost struct {
	Name string
	Runs uint64
	Time time.Duration
}

// Costs reads the run statistics of the attached programs.
func (m *Maps) Costs() []ProgramCost {
	var out []ProgramCost
	for name, p := range m.programs {
		if s, err := p.Stats(); err == nil {
			out = append(out, ProgramCost{Name: name, Runs: s.RunCount, Time: s.Runtime})
		}
	}
	return out
}

// connBytes is what the kernel charged for one marked connection (6.18, ten
// thousand of them): struct conn, rounded up by the allocator, and the
// kernel's own head of an element.
const connBytes = 1232

// Memory returns the kernel memory of the maps in bytes, with that of conns
// marked connections.
func (m *Maps) Memory(conns uint64) uint64 {
	total := conns * connBytes
	for _, mm := range m.collection.Maps {
		if info, err := mm.Info(); err == nil {
			if b, ok := info.Memlock(); ok {
				total += b
			}
		}
	}
	return total
}
