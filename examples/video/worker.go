package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/perkey"
	"github.com/millrace/millrace/pool"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
)

// The containers of the store.
const (
	uploads = "uploads"
	videos  = "videos"
)

// job asks for all formats of a video.
type job struct {
	Video    string    // the name of its upload
	Uploaded time.Time // when the visitor had sent it
}

// class is a queue for videos of one size and urgency, with a member of the pool of its own.
type class struct {
	name    string
	weight  int // of its member
	reserve int // slots that the others never take
	queue   queue.Queue

	mu      sync.Mutex
	pickups []time.Duration // from the upload to the first start of its handler; guarded by mu
}

// worker makes the formats of videos.
type worker struct {
	store   blob.Store
	keys    *perkey.Keys       // one delivery of a video at a time
	done    func(video string) // called when a video has all formats, or cannot have them; more than once if it comes again
	mu      sync.Mutex
	made    int   // formats made; guarded by mu
	bytes   int64 // of these; guarded by mu
	present int   // formats that an earlier delivery had made; guarded by mu
	refused int   // uploads that are no clips; guarded by mu
}

// listen returns a listener for a class, which takes its slots from the pool.
func (w *worker) listen(c *class, p *pool.Pool, wakeups wakeup.Source, logger *slog.Logger) *listener.Listener[job] {
	o := &listener.Options[job]{
		Slots:  p.Member(&pool.MemberOptions{Name: c.name, Weight: c.weight, Reserve: c.reserve}),
		Create: true, Wakeups: wakeups, Logger: logger, Grace: 5 * time.Second,
	}
	// Two deliveries of a video at once would do no harm, and its work twice.
	oneAtATime := perkey.MiddlewareBy(w.keys, func(m *listener.Message[job]) string { return m.Body.Video })
	pickedUp := func(next listener.Handler[job]) listener.Handler[job] {
		return func(ctx context.Context, m *listener.Message[job]) error {
			if m.DequeueCount == 1 {
				c.pickedUp(time.Since(m.Body.Uploaded))
			}
			return next(ctx, m)
		}
	}
	transcode := func(ctx context.Context, m *listener.Message[job]) error { return w.transcode(ctx, m.Body.Video) }
	return listener.New(c.queue, listener.Chain(transcode, pickedUp, oneAtATime), o)
}

func (c *class) pickedUp(after time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pickups = append(c.pickups, after)
}

// sorted returns how long the videos waited, the shortest wait first.
func (c *class) sorted() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(slices.Values(c.pickups))
}

// transcode stores the formats of a video that are not there yet. It may come twice, or for the second time after
// its worker has died: the names and the contents of the formats depend only on the upload, so what is there
// is right, and may be put again.
func (w *worker) transcode(ctx context.Context, video string) error {
	upload, err := w.read(ctx, video)
	if err != nil {
		return err
	}
	c, err := parseClip(upload)
	if err != nil {
		w.mu.Lock()
		w.refused++
		w.mu.Unlock()
		w.done(video) // no attempt helps: the message goes to the poison queue
		return listener.Poison(fmt.Errorf("transcode %s: %w", video, err))
	}
	for _, f := range formats {
		if err := w.ensure(ctx, video, f, c); err != nil {
			return fmt.Errorf("transcode %s: %w", video, err)
		}
	}
	w.done(video)
	return nil
}

// read reads an upload.
func (w *worker) read(ctx context.Context, video string) ([]byte, error) {
	r, err := w.store.Open(ctx, blob.Ref{Container: uploads, Name: video})
	if err != nil {
		return nil, err
	}
	upload, err := io.ReadAll(io.LimitReader(r, maxBytes))
	return upload, errors.Join(err, r.Close())
}

// ensure makes one format of a clip, unless it is there.
func (w *worker) ensure(ctx context.Context, video string, f format, c clip) error {
	ref := blob.Ref{Container: videos, Name: video + "/" + f.name}
	present, err := blob.Exists(ctx, w.store, ref)
	if err != nil {
		return err
	}
	if present {
		w.count(0, 1, 0)
		return nil
	}
	content, err := f.encode(c)
	if err != nil {
		return err
	}
	if err := w.store.Put(ctx, ref, bytes.NewReader(content), nil); err != nil {
		return err
	}
	w.count(1, 0, len(content))
	return nil
}

func (w *worker) count(made, present, size int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made += made
	w.present += present
	w.bytes += int64(size)
}
