package roles

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/table"
)

// LateDelay is when a channel is deleted for the second time. The first time has marked it before, and a write that had
// begun earlier may take channels.WriteTimeout. The second half is for requests that arrive after their writer
// has given up.
const LateDelay = 2 * channels.WriteTimeout

const (
	pageSize    = 1000             // posts
	concurrency = 8                // channels at once
	visibility  = 30 * time.Second // how soon another worker goes on after a crash
	grace       = 2 * time.Second  // at the stop; a page is lost, and it is deleted again
	unavailable = 10 * time.Second // between deliveries while a store is
	maxAttempts = 20               // with the listener's delays half a day
	maxLost     = 1000             // workers that die are no fault of the message
)

// worker deletes channels.
type worker struct {
	site      *channels.Site
	deletions *producer.Producer[Deletion] // to the worker's own queue
	page      int                          // posts
	logger    *slog.Logger
}

// NewWorker returns the worker role, a [millrace.Runner]. The queue is created when it is missing. Wakeups may be nil;
// a nil logger is slog.Default().
func NewWorker(q queue.Queue, site *channels.Site, wakeups listener.Wakeups, logger *slog.Logger) *listener.Listener[Deletion] {
	return NewWorkerWithVisibility(q, site, wakeups, logger, visibility)
}

// NewWorkerWithVisibility is [NewWorker] with another time after which another worker goes on when one has crashed: whole
// seconds, at least 5.
func NewWorkerWithVisibility(q queue.Queue, site *channels.Site, wakeups listener.Wakeups, logger *slog.Logger, visibility time.Duration) *listener.Listener[Deletion] {
	if logger == nil {
		logger = slog.Default()
	}
	w := &worker{site: site, deletions: newProducer(q, nil), page: pageSize, logger: logger}
	return w.listen(q, wakeups, visibility)
}

func (w *worker) listen(q queue.Queue, wakeups listener.Wakeups, visibility time.Duration) *listener.Listener[Deletion] {
	return listener.New(q, w.handle, &listener.Options[Deletion]{
		Create: true, Wakeups: wakeups, Logger: w.logger, Concurrency: concurrency, Grace: grace,
		Lease:  listener.LeaseOptions{Visibility: listener.FixedVisibility(visibility)},
		Poison: listener.PoisonPolicy{MaxAttempts: maxAttempts, MaxLost: maxLost},
	})
}

// handle is the handler of deletions. An unavailable store is no failed attempt.
func (w *worker) handle(ctx context.Context, m *listener.Message[Deletion]) error {
	err := w.delete(ctx, m)
	switch {
	case err == nil || ctx.Err() != nil: // the listener knows why it ended
		return err
	case errors.Is(err, channels.ErrInvalid):
		return listener.Poison(err)
	case table.Transient(err), queue.Transient(err):
		w.logger.Warn("a deletion waits for a store", "channel", m.Body.Channel, "wait", unavailable, "error", err)
		return listener.Snooze(unavailable)
	}
	return err
}

// delete deletes a channel with its posts, from the place that the message has.
func (w *worker) delete(ctx context.Context, m *listener.Message[Deletion]) error {
	name, of := m.Body.Channel, m.Body.Incarnation
	if err := w.site.BeginDeletion(ctx, name, of); err != nil {
		return err
	}
	if err := w.deletePosts(ctx, m); err != nil {
		return err
	}
	if err := w.sendLate(ctx, m); err != nil {
		return err
	}
	return w.site.EndDeletion(ctx, name, of)
}

// deletePosts makes passes over the posts until one finds none. What a pass has found is in the message with its
// place, so that a pass counts also if several workers have made it, one after the other.
func (w *worker) deletePosts(ctx context.Context, m *listener.Message[Deletion]) error {
	for {
		d := m.Body
		found, next, err := w.site.DeletePosts(ctx, d.Channel, d.Incarnation, d.Token, w.page)
		switch {
		case errors.Is(err, channels.ErrInvalid) && d.Token != "": // it is of another store, or of a release before
			found, next = 1, ""
		case err != nil:
			return err
		}
		d.Token, d.Found = next, d.Found || found > 0
		if d.Token == "" {
			if !d.Found {
				return nil
			}
			d.Found = false // another pass
		}
		if err := w.save(ctx, m, d); err != nil {
			return err
		}
	}
}

// save keeps the progress in the message. Without it only work is done twice; so an error stops the worker only if
// another one has the message.
func (w *worker) save(ctx context.Context, m *listener.Message[Deletion], d Deletion) error {
	err := m.Save(ctx, d)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil || errors.Is(err, listener.ErrLeaseLost) {
		return err
	}
	w.logger.Warn("the progress of a deletion is not saved", "channel", d.Channel, "error", err)
	m.Body = d
	return nil
}

// sendLate sends the second deletion, once for each message unless a worker dies.
func (w *worker) sendLate(ctx context.Context, m *listener.Message[Deletion]) error {
	if m.Body.Late || m.Body.Sent {
		return nil
	}
	late := Deletion{Channel: m.Body.Channel, Incarnation: m.Body.Incarnation, Late: true}
	if _, err := w.deletions.Send(ctx, late, &producer.SendOptions{Delay: LateDelay}); err != nil {
		return fmt.Errorf("delete channel %q: the second time: %w", late.Channel, err)
	}
	d := m.Body
	d.Sent = true
	return w.save(ctx, m, d)
}
