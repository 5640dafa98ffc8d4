// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// Static is a list of peers that does not change.
type Static struct {
	byWorker map[wire.WorkerID]wire.PeerInfo
}

// NewStatic makes a Static of the list; of an instance named twice the last one counts.
func NewStatic(list ...wire.PeerInfo) *Static {
	s := &Static{byWorker: make(map[wire.WorkerID]wire.PeerInfo, len(list))}
	for _, p := range list {
		s.byWorker[p.Instance.Worker()] = p
	}
	return s
}

// ByWorker implements Discovery.
func (s *Static) ByWorker(_ context.Context, w wire.WorkerID) (wire.PeerInfo, error) {
	if p, ok := s.byWorker[w]; ok {
		return p, nil
	}
	return wire.PeerInfo{}, fmt.Errorf("looking for worker %d in the list of peers: %w", uint64(w), ErrNotFound)
}

// ByInstance implements Discovery.
func (s *Static) ByInstance(ctx context.Context, id wire.InstanceID) (wire.PeerInfo, error) {
	return s.ByWorker(ctx, id.Worker())
}
