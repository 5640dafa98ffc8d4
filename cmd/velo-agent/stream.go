// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/velo-agent/velo-agent/agent"
	"github.com/velo-agent/velo-agent/config"
	"github.com/velo-agent/velo-agent/plane"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// longestLine bounds a line of standard input, which becomes a record.
const longestLine = 8 << 20

// offer is what a consumer hands to a producer, by whatever way requests travel.
type offer struct {
	Peer   wire.PeerInfo `json:"peer"`
	Handle wire.Handle   `json:"handle"`
	Ticket *wire.Ticket  `json:"ticket,omitempty"`
}

func streamCommand() *cli.Command {
	listen := []cli.Flag{
		&cli.StringFlag{Name: "listen", Usage: "`ADDRESS` that the other end can reach", Value: "127.0.0.1:0"},
		&cli.StringFlag{Name: "advertise", Usage: "`IP:PORT` by which it reaches that address, where a port mapping or NAT is between"},
		&cli.BoolFlag{Name: "insecure", Usage: "listen beyond this machine, without TLS"},
	}
	return &cli.Command{
		Name:  "stream",
		Usage: "try the response plane by hand: lines in, records across, lines out",
		Description: "One end makes an anchor and says where it is, the other sends lines to it:\n\n" +
			"   velo-agent stream receive --offer /tmp/offer.json\n" +
			"   seq 1000 | velo-agent stream send --to /tmp/offer.json\n\n" +
			"Either end may be a velo node: an offer is JSON with its `peer` (PeerInfo), `handle` and,\n" +
			"to spare the attach round trip, `ticket`.",
		Subcommands: []*cli.Command{
			{
				Name: "receive", Usage: "print the records of one stream, a line each",
				Description: "Writes the offer to standard error, or to a file, and records to standard output.\n\n" +
					"Exit codes: 0 the stream is complete, 4 no sender came, 5 it ended before its end.",
				Flags: append([]cli.Flag{
					&cli.StringFlag{Name: "offer", Usage: "write the offer to `FILE`, not to standard error"},
					&cli.BoolFlag{Name: "no-ticket", Usage: "offer no ticket: the sender attaches by a round trip"},
				}, listen...),
				Action: streamReceive,
			},
			{
				Name: "send", Usage: "send each line of standard input as a record",
				Description: "Finalizes the stream at the end of the input.\n\n" +
					"Exit codes: 0 all was sent, 2 the offer cannot be read, 4 the consumer is not there or wants no more.",
				Flags: append([]cli.Flag{
					&cli.StringFlag{Name: "to", Usage: "the offer: a `FILE`, or its JSON", Required: true},
				}, listen...),
				Action: streamSend,
			},
		},
	}
}

func streamNode(c *cli.Context) (*plane.Node, error) {
	if c.NArg() > 0 {
		return nil, usage(fmt.Errorf("%q: this verb takes flags only", c.Args().First()))
	}
	conf := config.Default().Plane
	conf.Listen, conf.Advertise, conf.Insecure = c.String("listen"), c.String("advertise"), c.Bool("insecure")
	o, err := agent.PlaneOptions(&conf)
	if err != nil {
		return nil, err
	}
	return plane.New(o)
}

func streamReceive(c *cli.Context) (err error) {
	n, err := streamNode(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	a, err := n.NewAnchor(plane.AnchorOptions{})
	if err != nil {
		return err
	}
	o := offer{Peer: n.PeerInfo(), Handle: a.Handle()}
	if !c.Bool("no-ticket") {
		if o.Ticket, err = a.Ticket(0); err != nil {
			return err
		}
	}
	if err := writeOffer(c.String("offer"), &o); err != nil {
		return err
	}
	out := bufio.NewWriter(c.App.Writer)
	for {
		b, err := a.Recv(c.Context)
		var said *plane.SenderError
		switch {
		case errors.Is(err, io.EOF):
			return out.Flush()
		case errors.As(err, &said):
			fmt.Fprintln(os.Stderr, "velo-agent: "+oneLine(err.Error()))
			continue
		case errors.Is(err, plane.ErrDetached):
			continue // another may attach
		case errors.Is(err, plane.ErrUnattached):
			return errors.Join(fmt.Errorf("%w: %w", agent.ErrNotThere, err), out.Flush())
		case err != nil:
			return errors.Join(err, out.Flush())
		}
		if _, err := out.Write(append(b, '\n')); err != nil {
			return err
		}
		if !a.Waiting() { // nothing more is there yet
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

func writeOffer(file string, o *offer) error {
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if file == "" {
		_, err := os.Stderr.Write(b)
		return err
	}
	part := file + ".part"
	if err := os.WriteFile(part, b, 0o600); err != nil {
		return fmt.Errorf("writing the offer: %w", err)
	}
	return os.Rename(part, file) // whoever sees it sees all of it
}

func readOffer(from string) (*offer, error) {
	text := []byte(from)
	if len(from) > 0 && from[0] != '{' {
		var err error
		if text, err = os.ReadFile(from); err != nil {
			return nil, usage(fmt.Errorf("reading the offer: %w", err))
		}
	}
	var o offer
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, usage(fmt.Errorf("reading the offer %.80q: %w; `velo-agent stream receive` writes one", from, err))
	}
	return &o, nil
}

func streamSend(c *cli.Context) (err error) {
	o, err := readOffer(c.String("to"))
	if err != nil {
		return err
	}
	n, err := streamNode(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if err := n.Register(o.Peer); err != nil {
		return usage(fmt.Errorf("using the offer: %w", err))
	}
	s, err := openOffer(c.Context, n, o)
	if err != nil {
		return fmt.Errorf("%w: %w", agent.ErrNotThere, err)
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		if err := s.Send(c.Context, lines.Bytes()); err != nil {
			return errors.Join(fmt.Errorf("%w: %w", agent.ErrNotThere, err), s.Close())
		}
	}
	if err := lines.Err(); err != nil {
		return errors.Join(fmt.Errorf("reading standard input: %w", err), s.Close())
	}
	if err := s.Finalize(); err != nil {
		return fmt.Errorf("%w: %w", agent.ErrNotThere, err)
	}
	if err := s.Retired(c.Context); err != nil {
		return fmt.Errorf("%w: %w", agent.ErrNotThere, err)
	}
	return nil
}

func openOffer(ctx context.Context, n *plane.Node, o *offer) (*plane.Sender, error) {
	if o.Ticket != nil {
		return n.Open(o.Handle, o.Ticket)
	}
	return n.Attach(ctx, o.Handle)
}
