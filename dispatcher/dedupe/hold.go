package dedupe

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
)

// A key in progress is held by one message. In a process its twins wait for a moment, which is enough
// for short handlers, and are given back to the queue otherwise. Between processes a marker in the
// store holds the key. It is the blob of the key, which the record replaces, so that it costs no
// call: creating it is also the lookup.
//
// A store can create a blob that does not exist, and cannot replace one on a condition. No marker may
// replace a record, because a handler that has lost its lease may still succeed. So a marker is never
// put: what becomes of it later is in a second blob, the lease. It is also the marker of a message
// that finds the key with a marker whose lease has ended, or with a record that is too old. A third
// blob, the lock, lets one process at a time do that.
const (
	maxWait    = time.Second // that a twin waits in its slot, since the key was held
	maxWaiting = 4           // twins of a key that wait in their slots

	skew       = 5 * time.Second  // by which the store's times are inexact
	lockLease  = time.Minute      // after which a lock was left by a process that died
	hangsPause = 10 * time.Second // between calls of a store that does not respond
)

// The endings of the names of the second and the third blob of a key.
const (
	leaseSuffix = ".lease"
	lockSuffix  = ".lock"
)

// The metadata of a marker. A record has none.
const (
	metaMessage = "message" // a digest of the id of the message that holds the key
	metaLease   = "lease"   // of that message, in milliseconds since the blob was put
)

// hold is a key that a message holds.
type hold struct {
	guard   *Guard
	key     string
	digest  digest
	message string        // a digest of its id
	over    chan struct{} // closed when the hold has ended

	begun   time.Time // guarded by Guard.mu
	until   time.Time // when the lease of the message ends; guarded by Guard.mu
	waiting int       // twins that wait for it in this process; guarded by Guard.mu

	marker   string        // the suffix of the blob that is its marker; constant after Begin
	marked   bool          // whether it certainly has one; constant after Begin
	changing chan struct{} // has an element while the marker is changed, and when the hold has ended
}

// Begin implements listener.Duplicates. A twin of a job in progress waits for up to a second in this
// process, before the error is ErrInProgress. While the store fails, the job is held in this process
// all the same.
func (g *Guard) Begin(ctx context.Context, key string, message queue.ID, lease time.Duration) (dispatcher.HeldJob, error) {
	sum := sha256.Sum256([]byte(message))
	h := &hold{
		guard: g, key: key, digest: sha256.Sum256([]byte(key)), message: fmt.Sprintf("%x", sum[:16]),
		over: make(chan struct{}), changing: make(chan struct{}, 1),
	}
	if !g.hold(ctx, h, lease) {
		return nil, dispatcher.ErrInProgress
	}
	var err error
	if g.recent.has(h.digest) {
		err = dispatcher.ErrHandled
	} else if g.store != nil {
		err = h.claim(ctx, lease)
		h.marked = err == nil
	}
	switch {
	case errors.Is(err, dispatcher.ErrHandled), errors.Is(err, dispatcher.ErrInProgress):
		h.end()
		return nil, err
	case err != nil:
		err = fmt.Errorf("look up whether %.100s was handled: %w", key, err)
	}
	return h, err
}

// hold waits until no other message holds the key in this process, and returns false if that takes
// too long.
func (g *Guard) hold(ctx context.Context, h *hold, lease time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		now := time.Now()
		other := g.held[h.digest]
		if other == nil || !other.until.After(now) {
			h.begun, h.until = now, now.Add(lease)
			g.held[h.digest] = h
			return true
		}
		patience := other.begun.Add(maxWait).Sub(now)
		if patience <= 0 || other.waiting >= maxWaiting || ctx.Err() != nil {
			return false
		}
		other.waiting++
		g.mu.Unlock()
		waiting.ForChange(patience, other.over, ctx.Done())
		g.mu.Lock()
		other.waiting--
	}
}

// end lets another message hold the key.
func (h *hold) end() {
	h.guard.mu.Lock()
	defer h.guard.mu.Unlock()
	if h.guard.held[h.digest] == h {
		delete(h.guard.held, h.digest)
		close(h.over)
	}
}

// claim marks the key in the store.
func (h *hold) claim(ctx context.Context, lease time.Duration) error {
	err := h.create(ctx, "", h.metadata(lease))
	if !errors.Is(err, blob.ErrExists) {
		return err
	}
	if err := h.look(ctx); err != nil {
		return err
	}
	err = h.create(ctx, lockSuffix, nil)
	if errors.Is(err, blob.ErrExists) {
		if info, err := h.stat(ctx, lockSuffix); err == nil {
			if age, err := info.Age(); err == nil && age > lockLease {
				_ = h.remove(ctx, lockSuffix) // for the next try
			}
		}
		return dispatcher.ErrInProgress
	}
	if err != nil {
		return err
	}
	defer func() { _ = h.remove(ctx, lockSuffix) }()
	if err := h.look(ctx); err != nil { // again: another may have the key by now
		return err
	}
	h.marker = leaseSuffix
	return h.put(ctx, leaseSuffix, h.metadata(lease))
}

// look returns ErrHandled or ErrInProgress if that is what the store says of the key.
func (h *hold) look(ctx context.Context) error {
	info, err := h.stat(ctx, "")
	switch {
	case errors.Is(err, blob.ErrMissing):
		return dispatcher.ErrInProgress // it was released just now: the next try creates it
	case err != nil:
		return err
	}
	if err := h.guard.examine(info); err != nil {
		if errors.Is(err, dispatcher.ErrHandled) || !h.owns(info) {
			return err
		}
	}
	lease, err := h.stat(ctx, leaseSuffix)
	switch {
	case errors.Is(err, blob.ErrMissing):
		return nil
	case err != nil:
		return err
	}
	if lease.Modified.Before(info.Modified) || h.owns(lease) { // an old one is of an earlier marker
		return nil
	}
	return h.guard.examine(lease)
}

// owns reports whether a marker is of this message, from an earlier delivery.
func (h *hold) owns(marker blob.Info) bool { return marker.Metadata[metaMessage] == h.message }

// examine returns ErrHandled for a record that is remembered, and ErrInProgress for a marker whose
// lease has not ended.
func (g *Guard) examine(info blob.Info) error {
	age, err := info.Age()
	if err != nil {
		return err
	}
	if _, marker := info.Metadata[metaMessage]; !marker {
		if age < g.options.Retention {
			return dispatcher.ErrHandled
		}
		return nil
	}
	lease, _ := strconv.ParseInt(info.Metadata[metaLease], 10, 64) // 0 if somebody else wrote it
	if age < time.Duration(lease)*time.Millisecond+skew {
		return dispatcher.ErrInProgress
	}
	return nil
}

// Extend implements listener.HeldJob. If the store fails, the marker may end before the handler does,
// and the next call tries again.
func (h *hold) Extend(ctx context.Context, lease time.Duration) {
	g := h.guard
	g.mu.Lock()
	held := g.held[h.digest] == h
	h.until = time.Now().Add(lease)
	g.mu.Unlock()
	if !held || !h.marked {
		return
	}
	select {
	case h.changing <- struct{}{}:
	default: // it has ended, or the one before has not
		return
	}
	defer func() { <-h.changing }()
	_ = h.put(ctx, leaseSuffix, h.metadata(lease))
}

// Record implements listener.HeldJob. In memory that never fails, even if the store does.
func (h *hold) Record(ctx context.Context) error {
	h.guard.recent.add(h.digest)
	h.end()
	if h.guard.store == nil {
		return nil
	}
	if err := h.put(ctx, "", nil); err != nil {
		return fmt.Errorf("record that %.100s was handled: %w", h.key, err)
	}
	return nil
}

// Release implements listener.HeldJob.
func (h *hold) Release(ctx context.Context, lost bool) {
	defer h.end()
	h.guard.mu.Lock()
	ours := h.marked && !lost && h.until.After(time.Now())
	h.guard.mu.Unlock()
	if !ours {
		return // the marker lapses
	}
	select {
	case h.changing <- struct{}{}: // for good
	case <-ctx.Done():
		return
	}
	if h.marker == "" {
		// A message that the store did not answer may have been handled and recorded beside this one.
		if info, err := h.stat(ctx, ""); err != nil || !h.owns(info) {
			return
		}
	}
	_ = h.remove(ctx, h.marker)
}

// metadata returns those of a marker.
func (h *hold) metadata(lease time.Duration) map[string]string {
	return map[string]string{metaMessage: h.message, metaLease: strconv.FormatInt(lease.Milliseconds(), 10)}
}

// ref returns a blob of the key.
func (h *hold) ref(suffix string) blob.Ref {
	ref := h.guard.ref(h.digest)
	ref.Name += suffix
	return ref
}

func (h *hold) create(ctx context.Context, suffix string, metadata map[string]string) error {
	return h.guard.call(ctx, func(ctx context.Context) error {
		return h.guard.store.Create(ctx, h.ref(suffix), strings.NewReader(h.key), &blob.PutOptions{Metadata: metadata})
	})
}

func (h *hold) put(ctx context.Context, suffix string, metadata map[string]string) error {
	return h.guard.call(ctx, func(ctx context.Context) error {
		return h.guard.store.Put(ctx, h.ref(suffix), strings.NewReader(h.key), &blob.PutOptions{Metadata: metadata})
	})
}

func (h *hold) stat(ctx context.Context, suffix string) (info blob.Info, err error) {
	err = h.guard.call(ctx, func(ctx context.Context) error {
		info, err = h.guard.store.Stat(ctx, h.ref(suffix))
		return err
	})
	return info, err
}

func (h *hold) remove(ctx context.Context, suffix string) error {
	return h.guard.call(ctx, func(ctx context.Context) error { return h.guard.store.Delete(ctx, h.ref(suffix)) })
}

var errNoResponse = fmt.Errorf("the store does not respond, and is asked again within %v", hangsPause)

// call calls the store. While it does not respond, only one call is sent now and then, and the others
// fail immediately: each would take as long as Options.Timeout.
func (g *Guard) call(ctx context.Context, request func(context.Context) error) error {
	begin := time.Now()
	g.mu.Lock()
	probe := g.away && g.hangs.Begin(begin)
	skip := g.away && !probe
	g.mu.Unlock()
	if skip {
		return errNoResponse
	}
	ctx, cancel := context.WithTimeout(ctx, g.options.Timeout)
	defer cancel()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if probe {
			g.hangs.End()
		}
		switch now := time.Now(); {
		case ctx.Err() == nil:
			g.away = false
		case errors.Is(ctx.Err(), context.DeadlineExceeded) && now.Sub(begin) >= g.options.Timeout/2: // the caller may have had less
			g.away = true
			g.hangs.Pause(now.Add(hangsPause))
		}
	}()
	return request(ctx)
}
