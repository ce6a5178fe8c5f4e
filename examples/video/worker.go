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
	"github.com/millrace/millrace/examples/video/index"
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

// job asks for all formats of an upload, and its place in the index.
type job struct {
	Video    string
	Version  int64     // of the upload, from 1: a video may be uploaded again
	Uploaded time.Time // when the visitor had sent it
}

// uploadRef is where an upload is.
func uploadRef(video string, version int64) blob.Ref {
	return blob.Ref{Container: uploads, Name: fmt.Sprintf("%s/%d", video, version)}
}

// formatRef is where a format of an upload is. The index tells which version of a video is the current one.
func formatRef(video string, version int64, f format) blob.Ref {
	return blob.Ref{Container: videos, Name: fmt.Sprintf("%s/%d/%s", video, version, f.name)}
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

// worker makes the formats of videos, and then writes their credits to the index.
type worker struct {
	store   blob.Store
	index   *index.Index
	keys    *perkey.Keys                      // one delivery of a video at a time
	done    func(video string, version int64) // called when an upload is done, or cannot be; more than once if it comes again
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
	transcode := func(ctx context.Context, m *listener.Message[job]) error {
		return w.transcode(ctx, m.Body.Video, m.Body.Version)
	}
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

// transcode stores the formats of an upload that are not there yet, and then makes the index say its credits. It may come twice, or for
// the second time after its worker has died: the names and the contents of the formats depend only on the upload, so what is
// there is right, and may be put again; and the index takes the same credits again.
func (w *worker) transcode(ctx context.Context, video string, version int64) error {
	c, credits, err := w.read(ctx, uploadRef(video, version))
	if errors.Is(err, errNoClip) || errors.Is(err, index.ErrCredits) {
		w.mu.Lock()
		w.refused++
		w.mu.Unlock()
		w.done(video, version) // no attempt helps: the message goes to the poison queue
		return listener.Poison(fmt.Errorf("transcode %s: %w", video, err))
	}
	if err != nil {
		return err
	}
	for _, f := range formats {
		if err := w.ensure(ctx, formatRef(video, version, f), f, c); err != nil {
			return fmt.Errorf("transcode %s: %w", video, err)
		}
	}
	if err := w.index.Put(ctx, video, version, credits); err != nil {
		return err
	}
	w.done(video, version)
	return nil
}

// read reads an upload. Visitors may have sent anything: the error is errNoClip or [index.ErrCredits] if it is no video.
func (w *worker) read(ctx context.Context, ref blob.Ref) (clip, index.Credits, error) {
	r, err := w.store.Open(ctx, ref)
	if err != nil {
		return clip{}, index.Credits{}, err
	}
	upload, err := io.ReadAll(io.LimitReader(r, maxBytes))
	if err := errors.Join(err, r.Close()); err != nil {
		return clip{}, index.Credits{}, err
	}
	c, err := parseClip(upload)
	if err != nil {
		return clip{}, index.Credits{}, err
	}
	credits, err := index.FromMetadata(r.Metadata)
	return c, credits, err
}

// ensure makes one format of a clip, unless it is there.
func (w *worker) ensure(ctx context.Context, ref blob.Ref, f format, c clip) error {
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
