package roles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/examples/mosaic/tiles"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
)

// Broker is the client interface: it submits requests for mosaics and delivers the results. The
// Broker of a [System] is safe for concurrent use.
type Broker struct {
	jobs    jobs
	queues  *queues
	binding binding
	logger  *slog.Logger
	health  health

	patience time.Duration // without a sign of life, before an order fails; 0 for no limit

	mu     sync.Mutex
	orders map[uuid.UUID]*Order // of this process; guarded by mu
}

// Request describes the mosaic that a client wants.
type Request struct {
	ClientID string         // name of the client
	Picture  io.Reader      // as picture.Decode reads it, read once
	Library  *tiles.Library // of tiles; its Size is that of a cell
	Scale    picture.Scale  // of the mosaic, times the picture; 0 means 1
	Slices   int            // 1 … rows of cells, such as those of picture.NewPlan
	Format   picture.Format // of the mosaic
	Tint     int            // how much of the picture's own colours is mixed in, in per cent: 0 … layout.MaxTint
	Reuse    layout.Reuse   // how freely tiles are used again; 0 means the default

	// Deliver receives the mosaic. If it fails, the order fails and the mosaic stays in the
	// store. It runs once, or again if its reader failed.
	Deliver func(mosaic io.Reader) error

	// Progress, if set, receives the numbers of the finished slices, from 0 and in ascending order, and how many slices
	// there are. It is called concurrently, and a call may have fewer slices than an earlier one.
	Progress func(stored []int, slices int)
}

// Order is a submitted request. Make one with [Broker.Submit].
type Order struct {
	ID     uuid.UUID
	broker *Broker
	Request

	resumed   bool          // submitted by an earlier run
	turn      chan struct{} // held while delivering; a channel, so that waiting ends with the context
	delivered bool          // guarded by turn
	finished  chan struct{} // closed when it is known how the order ended

	mu     sync.Mutex
	stored []int     // the slices that are known to be finished, in ascending order; guarded by mu
	sent   int       // messages that this process sent for it; guarded by mu
	seen   time.Time // when a handler of this process last got or ended a message of it; guarded by mu
	busy   int       // handlers of this process that have a message of it; guarded by mu
	err    error     // how it ended; set before finished is closed
}

func newOrder(b *Broker, id uuid.UUID, r Request) *Order {
	return &Order{ID: id, broker: b, Request: r, turn: make(chan struct{}, 1), finished: make(chan struct{})}
}

// Submit stores the library and the picture and requests the mosaic. The roles of this process
// or of others make it.
func (b *Broker) Submit(ctx context.Context, r Request) (*Order, error) {
	o := newOrder(b, uuid.New(), r)
	library := libraryRef(r.Library.ID())
	if err := b.putLibrary(ctx, library, r.Library); err != nil {
		return nil, err
	}
	if err := b.jobs.store.Put(ctx, inputRef(o.ID), r.Picture, nil); err != nil {
		return nil, err
	}
	// Registered before the message is sent, because the response may come at once.
	b.mu.Lock()
	b.orders[o.ID] = o
	b.mu.Unlock()
	err := b.queues.imageRequests.Submit(ctx, ImageRequest{
		Head:     b.queues.imageRequests.Head(r.ClientID, o.ID),
		ImageURI: inputRef(o.ID), ImageLibraryURI: library,
		TileSize: r.Library.Size(), Slices: r.Slices, OutputFormat: r.Format.String(),
		Scale: r.Scale, Tint: r.Tint, Reuse: r.Reuse,
	})
	if err != nil {
		b.forget(o)
		return nil, err
	}
	return o, nil
}

// fresh is the age up to which a stored library is not stored again. [Clean] keeps what is younger than
// [CleanAge], which is longer: so it does not delete the library of a request that is being submitted.
const fresh = CleanAge / 2

// putLibrary stores a library unless it was stored lately.
func (b *Broker) putLibrary(ctx context.Context, ref blob.Ref, l *tiles.Library) error {
	store := b.jobs.store
	info, err := store.Stat(ctx, ref)
	switch {
	case errors.Is(err, blob.ErrMissing):
		u := newUpload(func(r io.Reader) error { return store.Create(ctx, ref, r, nil) })
		if err := u.finish(l.Write(u)); !errors.Is(err, blob.ErrExists) {
			return err
		}
		return nil // another program has just stored the same
	case err != nil || time.Since(info.Modified) < fresh:
		return err
	}
	u := newUpload(func(r io.Reader) error { return store.Put(ctx, ref, r, nil) })
	return u.finish(l.Write(u))
}

func (b *Broker) forget(o *Order) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.orders, o.ID)
}

// order returns the order of this process with the id, or nil.
func (b *Broker) order(id uuid.UUID) *Order {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.orders[id]
}

// has reports whether the request belongs to this process and is not finished.
func (b *Broker) has(id uuid.UUID) bool {
	o := b.order(id)
	if o == nil {
		return false
	}
	done, _ := o.Finished()
	return !done
}

// busy reports whether a request of this process is not finished.
func (b *Broker) busy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range b.orders {
		if done, _ := o.Finished(); !done {
			return true
		}
	}
	return false
}

// stored receives the numbers of slices that are finished, from the job controller of this process and from the store, which
// knows those of others.
func (b *Broker) stored(id uuid.UUID, numbers ...int) {
	o := b.order(id)
	if o == nil || o.Progress == nil {
		return
	}
	o.mu.Lock()
	for _, n := range numbers {
		if i, known := slices.BinarySearch(o.stored, n); !known {
			o.stored = slices.Insert(o.stored, i, n)
		}
	}
	stored := slices.Clone(o.stored)
	o.mu.Unlock()
	o.Progress(stored, o.Slices)
}

// sent counts every message sent.
func (b *Broker) sent(id uuid.UUID) {
	if o := b.order(id); o != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.sent++
	}
}

// seen notes every message that a handler gets. The handler calls done at its end.
func (b *Broker) seen(id uuid.UUID) (done func()) {
	o := b.order(id)
	if o == nil {
		return func() {}
	}
	note := func(handlers int) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.seen = time.Now()
		o.busy += handlers
	}
	note(1)
	return func() { note(-1) }
}

// fail ends a request one of whose messages is poison, so that no one waits for it.
func (b *Broker) fail(ctx context.Context, id uuid.UUID, reason string) error {
	before, err := b.jobs.ended(ctx, id)
	if err != nil {
		return err
	}
	e, err := b.jobs.finish(ctx, id, end{Failed: reason})
	if err != nil {
		return err
	}
	if o := b.order(id); o != nil && e.Failed != "" {
		o.finish(&FailedError{Reason: e.Failed})
	} else if e.Failed != "" && before == nil { // each of its messages may report the end; log the first
		b.logger.Warn("a request of an earlier run, or of another program, has failed", "request", id, "reason", e.Failed)
	}
	return nil
}

// complete is the handler of image responses.
func (b *Broker) complete(ctx context.Context, m *listener.Message[ImageResponse]) error {
	id := m.Body.RequestID
	if o := b.order(id); o != nil {
		err := o.take(ctx, m.Body.ImageURI)
		if o.isDelivered() {
			// Even if the clean-up failed: it is repeated when the message is delivered again,
			// perhaps to a later run.
			o.finish(nil)
		}
		return err
	}
	if err := b.jobs.discard(ctx, id); err != nil {
		return err
	}
	// The client is another program, which will see the end of its request in the store, or one that
	// was killed.
	if _, err := b.jobs.store.Stat(ctx, m.Body.ImageURI); err != nil {
		return b.jobs.gone(ctx, id, err)
	}
	e, err := b.jobs.finish(ctx, id, end{Output: m.Body.ImageURI.String()})
	if err != nil {
		return err
	}
	b.logger.Warn("a request of an earlier run, or of another program, is finished: its mosaic is kept", "request", id, "mosaic", b.where(m.Body.ImageURI))
	return b.jobs.sweep(ctx, id, e.Output != "")
}

// where returns the location of a blob of this program.
func (b *Broker) where(ref blob.Ref) string { return whereIs(b.jobs.store, ref) }

// whereIs returns the location of a blob, as a path if it has one.
func whereIs(store blob.Store, ref blob.Ref) string {
	if d, ok := store.(interface{ Path(blob.Ref) string }); ok {
		return d.Path(ref)
	}
	return ref.String()
}

// FailedError means that a request ended without a mosaic.
type FailedError struct{ Reason string }

// Error returns the reason.
func (e *FailedError) Error() string { return e.Reason }

// KeptError means that a mosaic was made but could not be delivered. It stays in the store.
type KeptError struct {
	Where string // the mosaic
	Err   error
}

// Error returns the cause and the location of the mosaic.
func (e *KeptError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *KeptError) Unwrap() error { return e.Err }

func (o *Order) finish(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case <-o.finished:
	default:
		o.err = err
		close(o.finished)
	}
}

// Finished reports whether the order has ended, and its error.
func (o *Order) Finished() (bool, error) {
	select {
	case <-o.finished:
		return true, o.err
	default:
		return false, nil
	}
}

// Sent returns how many messages this process has sent for the order.
func (o *Order) Sent() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sent
}

// take delivers the mosaic once, records that, and cleans up. Steps that fail after the delivery
// can be repeated.
func (o *Order) take(ctx context.Context, output blob.Ref) error {
	select {
	case o.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-o.turn }()
	b := o.broker
	if done, err := o.Finished(); done && err != nil {
		return dispatcher.Snooze(standBack) // for a later run: the mosaic is kept
	}
	if !o.delivered {
		if err := o.deliver(ctx, output); err != nil {
			return err
		}
		o.delivered = true
	}
	return b.jobs.delivered(ctx, o.ID)
}

func (o *Order) isDelivered() bool {
	o.turn <- struct{}{}
	defer func() { <-o.turn }()
	return o.delivered
}

func (o *Order) deliver(ctx context.Context, output blob.Ref) error {
	b := o.broker
	r, err := b.jobs.store.Open(ctx, output)
	if err != nil {
		return b.jobs.gone(ctx, o.ID, err)
	}
	defer func() { _ = r.Close() }() // nothing was written
	content := &watched{r: r}
	err = o.Deliver(content)
	switch {
	case content.err != nil: // the store failed or the context ended: retry
		return fmt.Errorf("read the mosaic: %w", content.err)
	case err != nil:
		o.finish(&KeptError{b.where(output), err})
		return dispatcher.Snooze(standBack)
	}
	return nil
}

// watched keeps the error of its reader, to tell it from an error of its consumer.
type watched struct {
	r   io.Reader
	err error
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if err != nil && err != io.EOF {
		w.err = err
	}
	return n, err
}

// The intervals of Wait.
const (
	// lookAgain is the interval between checks of the store.
	lookAgain = 500 * time.Millisecond

	// silence is how long the queues may fail to respond.
	silence = 30 * time.Second

	// idle is how long nothing may happen before Wait checks whether the account is in use with
	// another store.
	idle = 2 * time.Second
)

// Wait returns when the order has ended, with nil if the mosaic was delivered, or when ctx ends,
// with its cause. Whichever process handles the response, the end of a request is recorded in
// the store, and Wait looks there.
func (o *Order) Wait(ctx context.Context) error {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	begin := time.Now()
	life := vital{laid: begin, polled: begin, read: begin, bound: begin}
	for {
		select {
		case <-o.finished:
			return o.err
		case <-ctx.Done():
			return context.Cause(ctx)
		case now := <-tick.C:
			if err := o.look(ctx, &life, now); err != nil {
				if o.isDelivered() {
					err = nil // only the clean-up failed
				}
				o.finish(err)
			}
		}
	}
}

// vital has the times of the last signs of life.
type vital struct {
	slices int
	laid   time.Time // when slices last increased
	polls  int64
	polled time.Time // when polls last increased
	read   time.Time // when the store was last read
	bound  time.Time // when the binding was last checked
	gone   time.Time // when a look first found nothing of the request; zero if it is there
}

// look checks for the end of the request and for signs of life. It returns the error with which
// the order ends.
func (o *Order) look(ctx context.Context, life *vital, now time.Time) error {
	b := o.broker
	e, stored, err := o.progress(ctx)
	switch {
	case err == nil:
		life.read = now
	case errors.Is(err, blob.ErrMissing):
		return err
	case now.Sub(life.read) > silence && ctx.Err() == nil:
		return fmt.Errorf("the blobs could not be used for %v: %w", silence, err)
	}
	if e != nil && e.Failed != "" {
		return &FailedError{e.Failed}
	}
	if len(stored) > life.slices {
		life.slices, life.laid = len(stored), now
		b.stored(o.ID, stored...)
	}
	if polls := b.health.polls(); polls > life.polls {
		life.polls, life.polled = polls, now
	}
	if err := b.health.lastError(); err != nil && now.Sub(life.polled) > silence {
		if !queue.Transient(err) {
			return fmt.Errorf("the queues have not responded for %v: %w", silence, err)
		}
		life.laid = now // nothing can happen in an outage
	}
	if now.Sub(life.laid) > idle && now.Sub(o.lastSeen()) > idle && now.Sub(life.bound) > idle {
		life.bound = now
		b.binding.check(ctx, b.logger)
		if o.resumed && o.isGone(ctx, life, now) {
			return fmt.Errorf("the request does not exist any more: %w", blob.ErrMissing)
		}
	}
	if patience := b.patience + b.longestTimeout(); b.patience > 0 && now.Sub(life.laid) > patience && now.Sub(o.lastSeen()) > patience {
		return fmt.Errorf("nothing has happened for %v: if other programs work on the same account, they must use the same blobs", patience)
	}
	return nil
}

// isGone reports whether nothing of the request has been in the store for a while. What an earlier run submitted may have
// been removed since.
func (o *Order) isGone(ctx context.Context, life *vital, now time.Time) bool {
	there, err := o.broker.jobs.there(ctx, o.ID)
	switch {
	case there || err != nil:
		life.gone = time.Time{}
	case life.gone.IsZero():
		life.gone = now
	}
	return !life.gone.IsZero() && now.Sub(life.gone) > silence
}

// WaitsFor returns the role whose work the order waits for, 0 if it has ended. It reads the store.
func (o *Order) WaitsFor(ctx context.Context) (Roles, error) {
	j := o.broker.jobs
	if done, _ := o.Finished(); done {
		return 0, nil
	}
	if requested, err := j.noted(ctx, o.ID, factRequested); err != nil || !requested {
		return Controller, err
	}
	stored, err := j.stored(ctx, o.ID)
	if err == nil && len(stored) < o.Slices {
		return Processor, nil
	}
	return Controller, err
}

// progress reads the progress of the request, and delivers the mosaic if another process has
// handled the response.
func (o *Order) progress(ctx context.Context) (*end, []int, error) {
	e, err := o.broker.jobs.ended(ctx, o.ID)
	if err != nil {
		return nil, nil, err
	}
	if e != nil && e.Failed == "" {
		return e, nil, o.takeLate(ctx, e.Output)
	}
	stored, err := o.broker.jobs.stored(ctx, o.ID)
	return e, stored, err
}

// takeLate delivers a mosaic that another process has kept for this one, or repeats a failed
// clean-up.
func (o *Order) takeLate(ctx context.Context, uri string) error {
	var output blob.Ref
	switch {
	case uri != "":
		var err error
		if output, err = blob.Parse(uri); err != nil {
			return err
		}
	case !o.isDelivered():
		return fmt.Errorf("the mosaic was delivered to another run of this program, and then deleted: %w", blob.ErrMissing)
	}
	switch err := o.take(ctx, output); {
	case err == nil:
		o.finish(nil)
		return nil
	case errors.Is(err, errEnded): // and the mosaic is gone
		return fmt.Errorf("take delivery of %v: %w", output, blob.ErrMissing)
	default:
		return err
	}
}

// lastSeen returns when a handler of this process last had a message of the order: now, if one has.
func (o *Order) lastSeen() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.busy > 0 {
		return time.Now()
	}
	return o.seen
}

func (b *Broker) longestTimeout() time.Duration {
	return max(b.queues.imageRequests.Timeout, b.queues.sliceRequests.Timeout, b.queues.sliceResponses.Timeout, b.queues.imageResponses.Timeout)
}

// Abandon cleans up after a failed order. Its remaining messages are discarded by their handlers. A request that has not
// ended is left alone.
func (o *Order) Abandon(ctx context.Context) error {
	if err := o.broker.jobs.discard(ctx, o.ID); !errors.Is(err, errEnded) {
		return err
	}
	return nil
}
