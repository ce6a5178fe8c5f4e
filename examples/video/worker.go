package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/gif"
	"io"
	"strings"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/examples/video/index"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// The classes of clips. Each has a queue and a share of the slots.
const (
	critical = "critical" // the news
	ordinary = "ordinary"
	heavy    = "heavy" // conversions of many pixels
)

// heavyPixels is where a heavy conversion begins.
const heavyPixels = 5e6

type class struct {
	name            string
	weight, reserve int // of its member of the pool
	queue           queue.Queue
}

// job asks for all formats of a clip.
type job struct {
	Video    string
	Class    string
	Uploaded time.Time
}

// indexJob asks for a clip's credits in the index.
type indexJob struct{ Video string }

// The containers of the clips. A version of a video's credits is an empty blob that has them as metadata.
const (
	uploads = "uploads" // VIDEO
	credits = "credits" // VIDEO/VERSION
	formed  = "formats" // VIDEO/FORMAT, or VIDEO/failed with the reason
)

const failed = "failed"

func formatRef(video, name string) blob.Ref {
	return blob.Ref{Container: formed, Name: video + "/" + name}
}

// worker converts clips.
type worker struct {
	*site
	slots   int
	lease   time.Duration
	started func(job) // called when a handler starts; nil unless someone counts
	ready   func()    // called when all formats are there; likewise
}

// listeners returns a listener for each class. They share a pool of slots: the news have one of their own and, with ordinary
// clips, most of the others while they need them; the heavy conversions take the rest.
func (w *worker) listeners() (all []millrace.Runner, err error) {
	shared, err := slots.NewShared(&slots.SharedOptions{Slots: w.slots})
	if err != nil {
		return nil, err
	}
	next := producer.New(w.indexing, &producer.Options[indexJob]{Create: true})
	for _, c := range w.classes {
		convert := func(ctx context.Context, m *listener.Message[job]) error {
			if w.started != nil {
				w.started(m.Body)
			}
			return w.convert(ctx, m.Body.Video, next)
		}
		all = append(all, listener.New(c.queue, convert, &listener.Options[job]{
			Slots: shared.Member(&slots.MemberOptions{Name: c.name, Weight: c.weight, Reserve: c.reserve}),
			Lease: listener.LeaseOptions{Visibility: listener.FixedVisibility(w.lease)}, Timeout: 10 * time.Minute, Grace: 5 * time.Second,
			Create: true, Wakeups: w.wakeups, Fetch: listener.FetchOptions{Idle: w.account.Idle()}, Logger: w.logger,
		}))
	}
	return all, nil
}

// convert makes the formats of a clip that are not there yet, and then asks for its place in the index. It may run twice, or for
// the second time after a worker has died: formats depend only on the clip, and indexing takes the same credits again.
func (w *worker) convert(ctx context.Context, video string, next *producer.Producer[indexJob]) error {
	err := w.make(ctx, video)
	if errors.Is(err, errClip) { // no attempt helps
		if err := w.clips.Put(ctx, formatRef(video, failed), strings.NewReader(err.Error()), nil); err != nil {
			return err
		}
		return listener.Poison(fmt.Errorf("convert %s: %w", video, err))
	}
	if err != nil {
		return fmt.Errorf("convert %s: %w", video, err)
	}
	if _, err := next.Send(ctx, indexJob{video}, nil); err != nil {
		return err
	}
	if w.ready != nil {
		w.ready()
	}
	return nil
}

// make stores the formats of a clip that are not there yet.
func (w *worker) make(ctx context.Context, video string) error {
	r, err := w.clips.Open(ctx, blob.Ref{Container: uploads, Name: video})
	if err != nil {
		return err
	}
	clip, err := io.ReadAll(io.LimitReader(r, maxBytes))
	if err := errors.Join(err, r.Close()); err != nil {
		return err
	}
	if _, err := measure(clip); err != nil {
		return err
	}
	g, err := gif.DecodeAll(bytes.NewReader(clip))
	if err != nil {
		return fmt.Errorf("%w: %w", errClip, err)
	}
	for _, f := range formats {
		ref := formatRef(video, f.Name)
		there, err := blob.Exists(ctx, w.clips, ref)
		if err != nil {
			return err
		}
		if there {
			continue
		}
		content, err := f.make(ctx, g, f.width)
		if err != nil {
			return err
		}
		if err := w.clips.Put(ctx, ref, bytes.NewReader(content), nil); err != nil {
			return err
		}
	}
	return nil
}

// indexer returns the listener that writes the index. It belongs to the web role, because not every account has tables that several
// processes can open.
func (s *site) indexer(x *index.Index) millrace.Runner {
	handle := func(ctx context.Context, m *listener.Message[indexJob]) error {
		return s.index(ctx, x, m.Body.Video)
	}
	return listener.New(s.indexing, handle, &listener.Options[indexJob]{
		Concurrency: 8, Create: true, Wakeups: s.wakeups, Fetch: listener.FetchOptions{Idle: s.account.Idle()}, Grace: 5 * time.Second, Logger: s.logger,
	})
}

// index writes the newest credits of a clip into the index when it can be watched. Before that it does nothing: when the last format is there,
// its worker asks again.
func (s *site) index(ctx context.Context, x *index.Index, video string) error {
	state, err := s.state(ctx, video)
	if err != nil || !state.Ready {
		return err
	}
	c, version, err := s.credits(ctx, video)
	if errors.Is(err, index.ErrCredits) {
		return listener.Poison(err)
	}
	if err != nil {
		return err
	}
	return x.Put(ctx, video, version, c)
}

// state says how far a clip is.
type state struct {
	Made   map[string]bool // formats
	Ready  bool            // all of them
	Failed string          // the reason; "" unless it failed
}

func (s *site) state(ctx context.Context, video string) (state, error) {
	st := state{Made: map[string]bool{}}
	for info, err := range s.clips.List(ctx, formed, video+"/") {
		if err != nil {
			return state{}, err
		}
		st.Made[strings.TrimPrefix(info.Ref.Name, video+"/")] = true
	}
	st.Ready = true
	for _, f := range formats {
		st.Ready = st.Ready && st.Made[f.Name]
	}
	if st.Ready || !st.Made[failed] { // ready: it was sent back after the failure
		return st, nil
	}
	r, err := s.clips.Open(ctx, formatRef(video, failed))
	if err != nil {
		return state{}, err
	}
	why, err := io.ReadAll(r)
	st.Failed = string(why)
	return st, errors.Join(err, r.Close())
}

// credits returns the newest credits of a clip and their version; [blob.ErrMissing] if there is no such clip.
func (s *site) credits(ctx context.Context, video string) (c index.Credits, version int64, err error) {
	for info, err := range s.clips.List(ctx, credits, video+"/") {
		if err != nil {
			return c, 0, err
		}
		version++ // they are numbered from 1, without gaps
		if c, err = index.FromMetadata(info.Metadata); err != nil {
			return c, 0, fmt.Errorf("read %s: %w", info.Ref, err)
		}
	}
	if version == 0 {
		return c, 0, fmt.Errorf("read the credits of %s: %w", video, blob.ErrMissing)
	}
	return c, version, nil
}

// creditsRef returns the place of a version. Six digits make names sort like versions.
func creditsRef(video string, version int64) blob.Ref {
	return blob.Ref{Container: credits, Name: fmt.Sprintf("%s/%06d", video, version)}
}
