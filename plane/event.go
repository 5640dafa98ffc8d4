// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"io"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// Event is a record, or what happened to a sender.
type Event struct {
	Kind wire.FrameKind
	// Data is a record's bytes, or the text of a SenderError or TransportError. It is
	// valid until the next call, or until the poller's function returns.
	Data []byte
	// Sender tells the senders of an MPSC anchor apart, from 1; 0: the anchor has one.
	Sender uint64
	// Err is why a record cannot be read (ErrMalformed), or why no sender came
	// (ErrUnattached).
	Err error
}

// Ends reports whether the event is the last of its sender.
func (e *Event) Ends() bool {
	switch e.Kind {
	case wire.Dropped, wire.Detached, wire.Finalized, wire.TransportError:
		return true
	}
	return e.Err != nil
}

// Error is the event as Recv returns it: nil for a record.
func (e *Event) Error() error {
	switch {
	case e.Err != nil:
		return e.Err
	case e.Kind == wire.SenderError:
		return &SenderError{string(e.Data)}
	case e.Kind == wire.TransportError:
		return &TransportError{string(e.Data)}
	case e.Kind == wire.Dropped:
		return ErrDropped
	case e.Kind == wire.Detached:
		return ErrDetached
	case e.Kind == wire.Finalized:
		return io.EOF
	}
	return nil
}

// itemHead begins a frame of msgpack bin with up to 255 bytes, by far the most.
const itemHead = "\x81\xa4Item\xc4"

// read decodes a frame.
func (e *Event) read(frame []byte) {
	*e = Event{}
	if n := len(itemHead); len(frame) > n && string(frame[:n]) == itemHead && len(frame) == n+1+int(frame[n]) {
		e.Data = frame[n+1:]
		return
	}
	var err error
	e.Kind, e.Data, err = wire.ParseStreamFrame(frame)
	if err == nil && e.Kind == wire.Item {
		e.Data, err = wire.ItemBytes(e.Data)
	}
	if err != nil {
		e.Err, e.Data = malformed{err}, nil
	}
}

// malformed is ErrMalformed with the reason.
type malformed struct{ why error }

func (m malformed) Error() string   { return ErrMalformed.Error() + ": " + m.why.Error() }
func (m malformed) Unwrap() []error { return []error{ErrMalformed, m.why} }
