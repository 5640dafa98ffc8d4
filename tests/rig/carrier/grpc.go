// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"

	"github.com/velo-agent/velo-agent/tests/rig/load"
)

// gRPC: a call with a stream of answers for each stream; the call is the request. A record
// is a message as it is, without protobuf.

var grpcStream = grpc.StreamDesc{StreamName: "Stream", ServerStreams: true}

const grpcMethod = "/rig.Rig/Stream"

// rawCodec takes and gives *[]byte. gRPC writes later, so the bytes are copied; into its
// own pool, the cheapest way.
type rawCodec struct{}

func (rawCodec) Name() string { return "raw" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.Copy(*v.(*[]byte), mem.DefaultBufferPool())}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b := v.(*[]byte)
	if cap(*b) < data.Len() {
		*b = make([]byte, data.Len())
	}
	*b = (*b)[:data.Len()]
	data.CopyTo(*b)
	return nil
}

type grpcConsumer struct {
	sink  *load.Sink
	conns []*grpc.ClientConn
}

func newGRPCConsumer(_ *Spec, sink *load.Sink) (Consumer, error) {
	return &grpcConsumer{sink: sink}, nil
}

func (c *grpcConsumer) Address() any { return nil }

func (c *grpcConsumer) Connect(producer json.RawMessage) error {
	var addresses []string
	if err := json.Unmarshal(producer, &addresses); err != nil {
		return err
	}
	for _, address := range addresses {
		cc, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))
		if err != nil {
			return fmt.Errorf("making a client of %s: %w", address, err)
		}
		cc.Connect()
		c.conns = append(c.conns, cc)
	}
	return nil
}

func (c *grpcConsumer) Request(stream int) error {
	go c.read(stream)
	return nil
}

func (c *grpcConsumer) Flush() error { return nil }

func (c *grpcConsumer) read(stream int) {
	account := c.sink.Stream(stream)
	cs, err := c.conns[stream%len(c.conns)].NewStream(context.Background(), &grpcStream, grpcMethod)
	if err != nil {
		account.End(err)
		return
	}
	request := binary.BigEndian.AppendUint64(nil, uint64(stream))
	if err := errors.Join(cs.SendMsg(&request), cs.CloseSend()); err != nil {
		account.End(err)
		return
	}
	for record := []byte(nil); ; {
		if err := cs.RecvMsg(&record); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			account.End(err)
			return
		}
		account.Take(record)
	}
}

func (c *grpcConsumer) Close() error { return closeAll(c.conns) }

type grpcProducer struct {
	addresses []string
	servers   []*grpc.Server
}

func newGRPCProducer(s *Spec, serve Serve) (Producer, error) {
	p := &grpcProducer{}
	desc := grpc.ServiceDesc{ServiceName: "rig.Rig", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
		StreamName: grpcStream.StreamName, ServerStreams: true,
		Handler: func(_ any, ss grpc.ServerStream) error {
			var request []byte
			if err := ss.RecvMsg(&request); err != nil {
				return err
			}
			sender := &grpcSender{ss: ss, closed: make(chan struct{})}
			serve(int(binary.BigEndian.Uint64(request)), sender, nil)
			<-sender.closed
			return nil
		},
	}}}
	for range s.Peers {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		server := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}))
		server.RegisterService(&desc, nil)
		p.servers = append(p.servers, server)
		p.addresses = append(p.addresses, l.Addr().String())
		go server.Serve(l) // it ends with Close
	}
	return p, nil
}

func (p *grpcProducer) Address() any { return p.addresses }

func (p *grpcProducer) Connect(json.RawMessage) error { return nil }

func (p *grpcProducer) Close() error {
	for _, s := range p.servers {
		s.Stop()
	}
	return nil
}

type grpcSender struct {
	ss     grpc.ServerStream
	closed chan struct{}
	record []byte
}

func (s *grpcSender) Send(record []byte) error {
	s.record = record
	return s.ss.SendMsg(&s.record)
}

// Close lets the call return, which ends the stream.
func (s *grpcSender) Close() error {
	close(s.closed)
	return nil
}
