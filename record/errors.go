// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

var (
	// ErrInUse says that another writer has the store open.
	ErrInUse = errors.New("another writer has this record open: stop the other daemon, or give this one a folder of its own")
	// ErrFull says that the file system has no room, or a quota none. The store
	// stays usable: appending succeeds once there is room.
	ErrFull = errors.New("no room for the record: free some space, or give it a folder on another file system")
	// ErrTooLarge says that a snapshot is larger than [MaxPayload] or than the
	// whole store may be.
	ErrTooLarge = errors.New("the snapshot is too large for the record")
)

// marked adds ErrFull to the errors of the kernel that mean it.
func marked(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}
