// SPDX-License-Identifier: Apache-2.0

package messenger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/velo-agent/velo-agent/plane/transport"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// pullPatience bounds each question about a staged payload.
const pullPatience = 30 * time.Second

// budget bounds the bytes of all payloads that are being pulled.
type budget struct {
	mu   sync.Mutex
	left int
}

func (b *budget) take(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.left {
		return false
	}
	b.left -= n
	return true
}

func (b *budget) give(n int) {
	b.mu.Lock()
	b.left += n
	b.mu.Unlock()
}

// pull runs a job of the pulling pool: it fetches the payload that the message only
// names, and has the message handled.
func (m *Messenger) pull(j *job) {
	body, err := m.fetch(j)
	switch {
	case err != nil:
		j.conn.Transport().Reject(transport.RouteFailed)
		m.log.Warn("a staged payload could not be pulled; the message is dropped", "from", uint64(j.from), "err", err)
		if j.kind != wire.FireAndForget {
			m.answer(j, nil, err)
		}
		return
	case j.handler.now != nil:
		j.body = body
		m.serve(j)
	default:
		j.body = body
		if !m.handling.submit(&j.line.handling, j) {
			m.overloaded(j)
		}
	}
}

// fetch asks the sender for a lease, pulls all chunks and gives the lease back.
func (m *Messenger) fetch(j *job) ([]byte, error) {
	h, err := wire.ParseDataHandle(j.staged)
	if err != nil {
		return nil, err
	}
	if h.Hi != j.from {
		return nil, fmt.Errorf("pulling a payload: %w: worker %d names one of worker %d", wire.ErrBody, uint64(j.from), uint64(h.Hi))
	}
	body, err := m.ask(j.from, wire.HandlerAcquire, wire.AcquireRequest{Handle: h})
	if err != nil {
		return nil, err
	}
	lease, err := wire.ParseAcquireAnswer(body)
	if err != nil {
		return nil, err
	}
	payload, err := m.chunks(j.from, lease)
	release, encoding := json.Marshal(wire.ReleaseRequest{Handle: h, LeaseID: lease.LeaseID})
	ctx, cancel := context.WithTimeout(m.ctx, pullPatience)
	defer cancel()
	if released := errors.Join(encoding, m.Fire(ctx, j.from, wire.HandlerRelease, release)); released != nil {
		m.log.Debug("giving a lease back failed", "err", released)
	}
	return payload, err
}

// chunks pulls the payload of a lease. What a peer declares costs nothing until it comes.
func (m *Messenger) chunks(from wire.WorkerID, lease *wire.AcquireAnswer) (payload []byte, err error) {
	if lease.TotalLen > uint64(m.o.Staged) {
		return nil, fmt.Errorf("pulling a payload: %w bytes: %d, at most %d are taken", ErrTooMany, lease.TotalLen, m.o.Staged)
	}
	total := int(lease.TotalLen)
	if !m.pulled.take(total) {
		return nil, fmt.Errorf("pulling a payload: %w bytes are being pulled already", ErrTooMany)
	}
	defer m.pulled.give(total)
	for i := range lease.ChunkCount {
		chunk, err := m.ask(from, wire.HandlerPull, wire.PullRequest{TransferID: lease.TransferID, ChunkIndex: i})
		if err != nil {
			return nil, err
		}
		if want := min(int(lease.ChunkSize), total-len(payload)); len(chunk) != want {
			return nil, fmt.Errorf("pulling a payload: %w: chunk %d has %d bytes, want %d", wire.ErrBody, i, len(chunk), want)
		}
		payload = append(payload, chunk...)
	}
	return payload, nil
}

func (m *Messenger) ask(from wire.WorkerID, handler string, body any) ([]byte, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(m.ctx, pullPatience)
	defer cancel()
	return m.Call(ctx, from, handler, b)
}
