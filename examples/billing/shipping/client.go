package shipping

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// ErrConflict means that another batch of the same day was sent before. Waiting does not help: what was sent
// first counts.
var ErrConflict = errors.New("another batch of this day was sent before")

// ErrNoInitiator means that what answers at the address is no server of batches.
var ErrNoInitiator = errors.New("not an Initiator")

// The waits between tries grow from firstWait to maxWait, and start over when something arrived.
const (
	firstWait = 100 * time.Millisecond
	maxWait   = 15 * time.Second
)

// doubtfulTries is how many answers that should not be are borne until something arrives. Some come from a gateway
// while the server restarts; others will never change.
const doubtfulTries = 5

// ClientOptions configure a [Client]. Nil and the zero value mean the defaults.
type ClientOptions struct {
	// HTTP sends the requests. Its redirects are not followed. Defaults to http.DefaultClient.
	HTTP *http.Client

	// RequestTimeout is how long a request may take, its body included. Defaults to 2 min.
	RequestTimeout time.Duration

	// Progress is called when the client knows what has arrived of a batch, and after each piece, in order for one
	// batch. It should not block. Defaults to none.
	Progress func(Progress)

	// Logger says once that the Initiator does not answer, and once that it answers again. Defaults to
	// slog.Default().
	Logger *slog.Logger
}

// Progress is how much of a batch has arrived.
type Progress struct {
	Batch          string
	Records, Bytes int64 // that have arrived, also earlier
	AllRecords     int64 // of the batch
	AllBytes       int64
}

// Client ships batches. Make one with [NewClient]. It is safe for concurrent use.
type Client struct {
	address string // without a slash at its end
	http    *http.Client
	options ClientOptions
	outage  *outage
}

// NewClient returns a client for the Initiator at an address, such as "http://initiator:8080". Nil options mean the
// defaults. It fails for what is no address, and sends nothing.
func NewClient(address string, o *ClientOptions) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("the address of the Initiator is http://host:port or https://host:port, not %.200q", address)
	}
	c := &Client{address: u.JoinPath("/").String()}
	if o != nil {
		c.options = *o
	}
	c.options.RequestTimeout = cmp.Or(max(c.options.RequestTimeout, 0), 2*time.Minute)
	plain := *cmp.Or(c.options.HTTP, http.DefaultClient)
	plain.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &plain
	c.outage = &outage{logger: cmp.Or(c.options.Logger, slog.Default())}
	return c, nil
}

// Ship sends what has not arrived of a batch, and returns [Received] when all of it has, or [Reported] when it is in the
// books already. While the Initiator does not answer Ship tries again, until ctx ends. It can be called again at any
// time, also by another process with the same batch. The error is [ErrConflict] if another batch of the same day
// was sent before, [ErrNoInitiator] if something else answers at the address, that of reading the spool, or the cause of ctx
// with the last failure.
func (c *Client) Ship(ctx context.Context, b *Batch) (State, error) {
	s := &shipment{client: c, batch: b}
	var err error
	if s.manifest, s.digest, err = b.Manifest.encode(); err != nil {
		return "", fmt.Errorf("ship batch %s: %w", b.Manifest.Batch, err)
	}
	s.waits = backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstWait),
		backoff.WithMultiplier(2),
		backoff.WithMaxInterval(maxWait),
		backoff.WithMaxElapsedTime(0), // until ctx ends
	)
	err = backoff.Retry(func() error { return s.attempt(ctx) }, backoff.WithContext(s.waits, ctx))
	if err == nil {
		return s.state, nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
		if s.last != nil {
			err = fmt.Errorf("%w; before that: %w", err, s.last)
		}
	}
	return "", fmt.Errorf("ship batch %s: %w", b.Manifest.Batch, err)
}

// shipment is one call of Ship.
type shipment struct {
	client   *Client
	batch    *Batch
	manifest []byte
	digest   string
	waits    *backoff.ExponentialBackOff

	state    State
	arrived  Progress
	doubtful int   // answers that should not be, since something arrived
	last     error // of the last attempt that failed for another reason than the end of its context
}

// attempt goes on from what has arrived, until the first failure. It marks failures that no wait mends as permanent.
func (s *shipment) attempt(ctx context.Context) error {
	begun := time.Now()
	err := s.run(ctx)
	if err == nil {
		s.client.outage.end()
		return nil
	}
	if ctx.Err() != nil {
		return backoff.Permanent(err)
	}
	s.last = err
	switch a := (*answerError)(nil); {
	case errors.Is(err, errAway):
		s.client.outage.note(begun, err)
		return err
	case errors.As(err, &a) && !a.final():
		if s.doubtful++; s.doubtful < doubtfulTries {
			return err
		}
	}
	return backoff.Permanent(err)
}

// run asks what has arrived and sends the rest.
func (s *shipment) run(ctx context.Context) error {
	status, err := s.status(ctx)
	if err != nil {
		return err
	}
	s.begin(status)
	buffer := make([]byte, 0, MaxPieceBytes)
	for _, n := range status.Missing {
		piece, err := s.batch.readPiece(n, buffer)
		if err != nil {
			return err
		}
		if err := s.client.putPiece(ctx, s.batch.Manifest.Batch, n, piece); err != nil {
			return err
		}
		s.progress(n)
	}
	if status.State == Reported {
		s.state = Reported
		return nil
	}
	status, err = s.client.complete(ctx, s.batch.Manifest.Batch)
	if err == nil {
		s.state = status.State
	}
	return err
}

// status returns what has arrived, after it sent the manifest if that has not.
func (s *shipment) status(ctx context.Context) (*Status, error) {
	name := s.batch.Manifest.Batch
	status, err := s.client.status(ctx, name)
	if a := (*answerError)(nil); errors.As(err, &a) && a.ours && a.status == http.StatusNotFound {
		if status, err = s.client.putManifest(ctx, name, s.manifest, s.digest); err == nil {
			s.moved()
		}
	}
	if err != nil {
		return nil, err
	}
	if status.Manifest != s.digest {
		return nil, &answerError{status: http.StatusConflict, ours: true, text: otherBatch(name, status)}
	}
	if err := status.check(len(s.batch.Manifest.Pieces)); err != nil {
		return nil, &answerError{status: http.StatusOK, ours: true, text: err.Error()}
	}
	return status, nil
}

// otherBatch says what became of the batch that was sent first.
func otherBatch(name string, s *Status) string {
	if s.State == Receiving {
		return fmt.Sprintf("another batch of %s was sent before, and has not arrived whole: it is billed when the same records are shipped again", name)
	}
	return fmt.Sprintf("another batch of %s was sent before, and that one is billed", name)
}

// moved notes that something arrived.
func (s *shipment) moved() {
	s.waits.Reset()
	s.doubtful = 0
	s.client.outage.end()
}

// begin counts what has arrived.
func (s *shipment) begin(status *Status) {
	s.client.outage.end()
	m := &s.batch.Manifest
	s.arrived = Progress{Batch: m.Batch, AllRecords: int64(m.Records()), AllBytes: m.Bytes()}
	s.arrived.Records, s.arrived.Bytes = s.arrived.AllRecords, s.arrived.AllBytes
	for _, n := range status.Missing {
		s.arrived.Records -= int64(m.Pieces[n].Records)
		s.arrived.Bytes -= m.Pieces[n].Bytes
	}
	s.tell()
}

// progress counts a piece.
func (s *shipment) progress(n int) {
	s.moved()
	s.arrived.Records += int64(s.batch.Manifest.Pieces[n].Records)
	s.arrived.Bytes += s.batch.Manifest.Pieces[n].Bytes
	s.tell()
}

func (s *shipment) tell() {
	if tell := s.client.options.Progress; tell != nil {
		tell(s.arrived)
	}
}
