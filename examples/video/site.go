package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/wakeup"
)

// site is the web role: it stores what visitors upload, and enqueues a job for each. It is a
// [millrace.Runner] that ends when all its videos are done, which stops the workers.
type site struct {
	store     blob.Store
	producers map[string]*producer.Producer[job] // by class
	plan      []upload
	finished  chan struct{} // closed when all videos are done

	mu   sync.Mutex
	left map[string]bool // videos that are not done; guarded by mu
}

// upload is what a visitor sends.
type upload struct {
	video  string
	class  string
	clip   clip
	broken bool // not a clip
	twice  bool // the visitor clicks twice
}

// content returns what the visitor sends.
func (u upload) content() []byte {
	if u.broken {
		return []byte("not a video at all")
	}
	return u.clip.encode()
}

// planUploads returns n uploads. A flood of large clips comes first, then the news and small clips in turn. One upload
// is broken, and every tenth comes twice.
func planUploads(n int) (plan []upload) {
	for i := range n {
		u := upload{class: "heavy", clip: clip{320, 180, nil}, twice: i%10 == 3, broken: i == 7}
		switch {
		case i < n*3/5:
		case i%2 == 0:
			u.class, u.clip = "critical", clip{80, 45, nil}
		default:
			u.class, u.clip = "normal", clip{160, 90, nil}
		}
		u.video = fmt.Sprintf("%03d-%s", i, u.class)
		plan = append(plan, u)
	}
	return plan
}

// frames of each clip.
const frames = 48

func newSite(store blob.Store, classes []*class, wakeups wakeup.Publisher, videos int) *site {
	s := &site{store: store, plan: planUploads(videos), producers: map[string]*producer.Producer[job]{}, finished: make(chan struct{}), left: map[string]bool{}}
	for _, c := range classes {
		s.producers[c.name] = producer.New(c.queue, &producer.Options[job]{Create: true, Wakeups: wakeups})
	}
	for _, u := range s.plan {
		s.left[u.video] = true
	}
	return s
}

// visitors is how many upload at once.
const visitors = 4

// Run uploads everything and waits until all of it is done.
func (s *site) Run(ctx context.Context) error {
	var all sync.WaitGroup
	errs := make([]error, visitors)
	for visitor := range visitors {
		all.Go(func() { errs[visitor] = s.visit(ctx, visitor) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	select {
	case <-s.finished:
	case <-ctx.Done():
	}
	return nil
}

// visit uploads what one visitor has, every fourth of all.
func (s *site) visit(ctx context.Context, visitor int) error {
	for i := visitor; i < len(s.plan) && ctx.Err() == nil; i += visitors {
		if err := s.accept(ctx, s.plan[i], uint64(i)); err != nil && ctx.Err() == nil {
			return fmt.Errorf("upload %s: %w", s.plan[i].video, err)
		}
	}
	return nil
}

// Halt does nothing: Run ends with its context.
func (*site) Halt() {}

// accept stores an upload before it enqueues its job: a job without its upload would fail.
func (s *site) accept(ctx context.Context, u upload, seed uint64) error {
	u.clip = film(u.clip.width, u.clip.height, frames, seed)
	if err := s.store.Put(ctx, blob.Ref{Container: uploads, Name: u.video}, bytes.NewReader(u.content()), nil); err != nil {
		return err
	}
	sends := 1
	if u.twice {
		sends = 2
	}
	for range sends {
		if _, err := s.producers[u.class].Send(ctx, job{u.video, time.Now()}, nil); err != nil {
			return err
		}
	}
	return nil
}

// done is told of each video that needs no worker any more.
func (s *site) done(video string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.left[video] {
		return
	}
	if delete(s.left, video); len(s.left) == 0 {
		close(s.finished)
	}
}

// open returns how many videos are not done.
func (s *site) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.left)
}
