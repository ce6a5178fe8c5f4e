package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/billing/shipping"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/examples/internal/progress"
)

const shipHelp = `Usage: billing ship [flags]

Sorts usage records by day and ships each day, a batch, to billing initiator. It goes on where the line
broke or an earlier billing ship was killed.

Flags:

` + usageHelp + `  -to URL            the initiator (default ` + defaultInitiator + `)
  -spool DIR         where records are sorted (default: a folder in your data directory)
`

// defaultInitiator is where billing initiator receives batches on this machine.
const defaultInitiator = "http://" + defaultAddr

// shipper is the command ship. It is a [millrace.Runner].
type shipper struct {
	usage
	to, spool string
	show      *progress.Progress
	logger    *slog.Logger
}

func shipCommand() cli.Command {
	return cli.Command{Name: "ship", Does: "ship usage records to the initiator, in batches", Help: shipHelp,
		Run: func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
			s := &shipper{show: progress.New(stdout, stderr)}
			defer s.show.Close()
			s.logger = plainlog.New(s.show)
			f := cli.NewFlags("billing ship")
			s.flags(f)
			f.StringVar(&s.to, "to", defaultInitiator, "")
			f.StringVar(&s.spool, "spool", "", "")
			given, err := cli.ParseFlags(f, args, "to", "spool")
			if err != nil {
				return err
			}
			if err := s.check(given); err != nil {
				return err
			}
			return millrace.Run(ctx, s)
		}}
}

// Halt does nothing: every step ends soon after the first signal.
func (*shipper) Halt() {}

// Run ships all batches.
func (s *shipper) Run(ctx context.Context) error {
	err := s.run(ctx)
	if ctx.Err() != nil {
		return errors.New("stopped; billing ship with the same flags goes on")
	}
	return err
}

func (s *shipper) run(ctx context.Context) (err error) {
	if s.spool == "" {
		data, err := program.Folder()
		if err != nil {
			return fmt.Errorf("there is no folder to sort records in: %w; name one with -spool", err)
		}
		s.spool = filepath.Join(data, "spool")
	}
	s.show.Say("%s", s.from())
	rejected := &rejections{show: s.show}
	spool, err := consolidate(ctx, &s.usage, s.spool, s.show, rejected)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, spool.Close()) }()
	c, err := shipping.NewClient(s.to, &shipping.ClientOptions{Logger: s.logger, Progress: func(p shipping.Progress) {
		s.show.Bar("shipping "+p.Batch, int(p.Records), int(p.AllRecords))
	}})
	if err != nil {
		return cli.UsageErrorf("-to: %w", err)
	}
	batches, failed := 0, 0
	err = shipAll(ctx, spool, c, func(b *shipping.Batch, state shipping.State, err error) error {
		batches++
		switch m := &b.Manifest; {
		case errors.Is(err, shipping.ErrConflict):
			failed++
			s.show.Say("%v", err)
			return nil
		case err != nil:
			return err
		case state == shipping.Reported:
			s.show.Say("batch %s is in the books already", m.Batch)
		default:
			s.show.Say("batch %s: %s in %s, handed over", m.Batch, cli.Plural(m.Records(), "record"), cli.Plural(len(m.Pieces), "piece"))
		}
		return nil
	})
	rejected.end(batches)
	if err == nil && failed > 0 {
		err = fmt.Errorf("%s could not be shipped, because other records of the same days were shipped before", cli.Plural(failed, "batch"))
	}
	return err
}

// consolidate sorts the records into the spool.
func consolidate(ctx context.Context, u *usage, folder string, show *progress.Progress, rejected *rejections) (*shipping.Spool, error) {
	return shipping.Consolidate(ctx, folder, u.sources(show), &shipping.SpoolOptions{Rejected: rejected.add})
}

// shipAll ships one batch after the other. It calls shipped for each, and ends with the first
// error of that.
func shipAll(ctx context.Context, spool *shipping.Spool, c *shipping.Client, shipped func(*shipping.Batch, shipping.State, error) error) error {
	for b, err := range spool.Batches(ctx) {
		if err != nil {
			return err
		}
		state, err := c.Ship(ctx, b)
		if err := shipped(b, state, err); err != nil {
			return err
		}
	}
	return nil
}

// rejections shows the first lines that are not billed, and counts the rest. It is safe for concurrent use.
type rejections struct {
	show *progress.Progress

	mu sync.Mutex
	n  int // guarded by mu
}

// shownRejections is how many lines are shown: the report has them all.
const shownRejections = 10

func (r *rejections) add(one records.Rejection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n++; r.n <= shownRejections {
		r.show.Say("rejected: %v", &one)
	}
}

func (r *rejections) addAll(all []records.Rejection) {
	for _, one := range all {
		r.add(one)
	}
}

// end says how many lines were not shown, and whether there are batches, so that a report names them.
func (r *rejections) end(batches int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	named := "the report names them"
	if batches == 0 {
		named = "no report names them, because there is no record to bill"
	}
	if r.n > shownRejections {
		r.show.Say("rejected: %s more; %s", cli.Plural(r.n-shownRejections, "line"), named)
	}
}
