// SPDX-License-Identifier: Apache-2.0

// Package discovery answers who a peer is and where it listens, for a node that was
// not told.
package discovery

import (
	"context"
	"errors"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// ErrNotFound: nobody by that id is known here.
var ErrNotFound = errors.New("peer not found")

// Discovery finds peers. Errors wrap ErrNotFound where the peer is just not there; any
// other error says that it could not be looked up.
type Discovery interface {
	ByWorker(ctx context.Context, w wire.WorkerID) (wire.PeerInfo, error)
	ByInstance(ctx context.Context, id wire.InstanceID) (wire.PeerInfo, error)
}
