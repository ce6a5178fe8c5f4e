package claimcheck

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/internal/blobcheck"
	"github.com/millrace/millrace/internal/claimtext"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/internal/units"
)

// Defaults of [Options].
const (
	defaultLimit     = 48 << 10
	defaultMaxBody   = 64 << 20
	defaultTimeout   = 5 * time.Minute
	defaultRetention = 14 * 24 * time.Hour
)

// Options configure [Claims]. Nil and the zero value mean the defaults.
type Options struct {
	// Limit is the size of the largest body, in bytes, that stays in its message. A smaller one
	// is stored too if it does not fit, because its characters need escaping or Base64. Negative
	// is an error. Defaults to 48 KiB.
	Limit int

	// MaxBody is the size of the largest body that is stored and opened, in bytes. Negative is an
	// error. Defaults to 64 MiB.
	MaxBody int64

	// Timeout bounds each call, in addition to its context. Negative, and less than 1 µs, are
	// errors. Defaults to 5 min.
	Timeout time.Duration

	// Retention is how long a tombstone stays before [Claims.Sweep] removes it: as long as
	// duplicates of a message may come. Negative, and less than 1 µs, are errors. Defaults to 14
	// days.
	Retention time.Duration
}

// Claims stores and opens bodies. Make one with [New]. It is safe for concurrent use.
type Claims struct {
	_ [0]sync.Mutex // go vet reports copies

	store     blob.Store
	container string
	options   Options
}

// New returns claims in a container of the store, which nothing else should use. It sends nothing.
// The error names every invalid option.
func New(store blob.Store, container string, o *Options) (*Claims, error) {
	c := &Claims{store: store, container: container}
	if o != nil {
		c.options = *o
	}
	if err := c.options.withDefaults(); err != nil {
		return nil, fmt.Errorf("claims in container %q: %w", container, err)
	}
	if hook.IsNil(store) {
		return nil, fmt.Errorf("claims in container %q: the store is nil. Pass one, such as that of stores.OpenBlobs", container)
	}
	if err := blobcheck.Container(container); err != nil {
		return nil, fmt.Errorf("claims: %w", err)
	}
	return c, nil
}

func (o *Options) withDefaults() error {
	var errs []error
	if o.Limit < 0 || o.MaxBody < 0 {
		errs = append(errs, fmt.Errorf("limit %d and MaxBody %d must not be negative", o.Limit, o.MaxBody))
	}
	if o.Timeout < 0 || o.Retention < 0 {
		errs = append(errs, fmt.Errorf("the Timeout %v and the Retention %v must not be negative", o.Timeout, o.Retention))
	}
	errs = append(errs, units.Wait("Timeout", o.Timeout), units.Wait("Retention", o.Retention))
	o.Limit = cmp.Or(o.Limit, defaultLimit)
	o.MaxBody = cmp.Or(o.MaxBody, defaultMaxBody)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.Retention = cmp.Or(o.Retention, defaultRetention)
	return errors.Join(errs...)
}

// The metadata that marks a tombstone.
const (
	stateKey = "state"
	settled  = "settled"
)

// folder begins the names of all blobs.
const folder = "bodies/"

// Limit returns Options.Limit.
func (c *Claims) Limit() int { return c.options.Limit }

// Put stores a body and returns its claim. A body over Options.MaxBody is an error, because no
// worker would open it.
func (c *Claims) Put(ctx context.Context, body []byte) (claim string, err error) {
	if int64(len(body)) > c.options.MaxBody {
		return "", fmt.Errorf("store a body: it has %d bytes, and MaxBody is %d", len(body), c.options.MaxBody)
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	r := claimtext.Of(blob.Ref{Container: c.container, Name: folder + strings.ToLower(rand.Text())}, body)
	if err := c.store.Put(ctx, r.Ref, bytes.NewReader(body), nil); err != nil {
		return "", fmt.Errorf("store a body: %w", err)
	}
	return r.String(), nil
}

// Open returns the body of a claim, whose checksum it has verified. The error matches
// [blob.ErrMissing] if the body is gone, and [codec.ErrNewer] for a claim of a newer release.
// Workers also recognise the errors for a body whose job is done and for an invalid claim. With any
// other error the body cannot be read for now.
func (c *Claims) Open(ctx context.Context, claim string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	r, err := c.parse(claim)
	if err != nil {
		return nil, fmt.Errorf("open a body: %w", err)
	}
	body, err := c.read(ctx, r)
	if errors.Is(err, blob.ErrChanged) { // it has become a tombstone
		body, err = c.read(ctx, r)
	}
	if errors.Is(err, blob.ErrMissing) {
		err = fmt.Errorf("%w: %w", envelope.ErrClaimGone, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open a body: %w", err)
	}
	return body, nil
}

func (c *Claims) read(ctx context.Context, r claimtext.Claim) (body []byte, err error) {
	if r.Size > c.options.MaxBody {
		return nil, fmt.Errorf("%w: the body has %d bytes, and MaxBody is %d", envelope.ErrClaimInvalid, r.Size, c.options.MaxBody)
	}
	stored, err := c.store.Open(ctx, r.Ref)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stored.Close() }() // everything has been read, or the error is another
	switch {
	case stored.Metadata[stateKey] == settled:
		return nil, fmt.Errorf("%w: %v", envelope.ErrClaimSettled, r.Ref)
	case stored.Size != r.Size:
		return nil, fmt.Errorf("%w: %v has %d bytes, and the claim says %d", envelope.ErrClaimInvalid, r.Ref, stored.Size, r.Size)
	}
	body = make([]byte, r.Size)
	if _, err := io.ReadFull(stored, body); err != nil {
		return nil, fmt.Errorf("read %v: %w", r.Ref, err)
	}
	if claimtext.Of(r.Ref, body) != r {
		return nil, fmt.Errorf("%w: the checksum of %v is not that of the claim", envelope.ErrClaimInvalid, r.Ref)
	}
	return body, nil
}

// Settled replaces a body by a tombstone. Call it when no message needs the body any more: its
// message was deleted with certainty, because its job is done or not wanted. It may be called
// again. Of a claim that Open would refuse as invalid it changes nothing and returns the error.
func (c *Claims) Settled(ctx context.Context, claim string) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	r, err := c.parse(claim)
	if err == nil {
		err = c.store.Put(ctx, r.Ref, strings.NewReader(""), &blob.PutOptions{Metadata: map[string]string{stateKey: settled}})
	}
	if err != nil {
		return fmt.Errorf("replace the body of a job that is done by a tombstone: %w", err)
	}
	return nil
}

// parse parses a claim and refuses one of a body that these claims do not keep.
func (c *Claims) parse(text string) (claimtext.Claim, error) {
	claim, err := claimtext.Parse(text)
	if claim.Ref != (blob.Ref{}) && (claim.Ref.Container != c.container || !strings.HasPrefix(claim.Ref.Name, folder)) {
		return claimtext.Claim{}, fmt.Errorf("%w: it refers to %v, and this program opens only what is in %s",
			envelope.ErrClaimInvalid, claim.Ref, blob.Ref{Container: c.container, Name: folder})
	}
	return claim, err
}
