package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/video/index"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/wakeup"
)

// site is the web role: it stores what visitors upload, and enqueues a job for each. It is a
// [millrace.Runner] that ends when all its videos are done, which stops the workers.
type site struct {
	store     blob.Store
	index     *index.Index
	producers map[string]*producer.Producer[job] // by class
	plan      []upload
	finished  chan struct{} // closed when all videos are done

	mu     sync.Mutex
	isDone map[job]bool // the uploads that need no worker any more; guarded by mu
}

// upload is what a visitor sends.
type upload struct {
	video   string
	class   string
	clip    clip
	credits index.Credits
	visitor int
	broken  bool // not a clip
	twice   bool // the visitor clicks twice
}

// content returns what the visitor sends.
func (u upload) content() []byte {
	if u.broken {
		return []byte("not a video at all")
	}
	return u.clip.encode()
}

// planUploads returns the uploads of n videos. A flood of large clips comes first, then the news and small clips in turn. One
// upload is broken, and every tenth comes twice. Every tenth video is uploaded again at the end, with another title, by the same
// visitor.
func planUploads(n int) (plan []upload) {
	for i := range n {
		u := upload{class: "heavy", clip: clip{320, 180, nil}, visitor: i % visitors, twice: i%10 == 3, broken: i == 7}
		switch {
		case i < n*3/5:
		case i%2 == 0:
			u.class, u.clip = "critical", clip{80, 45, nil}
		default:
			u.class, u.clip = "normal", clip{160, 90, nil}
		}
		u.video, u.credits = fmt.Sprintf("%03d-%s", i, u.class), inventCredits(uint64(i))
		plan = append(plan, u)
	}
	for i := 5; i < n; i += 10 {
		u := plan[i]
		u.credits.Title += " Restored"
		plan = append(plan, u)
	}
	return plan
}

// frames of each clip.
const frames = 48

func newSite(store blob.Store, x *index.Index, classes []*class, wakeups wakeup.Publisher, videos int) *site {
	s := &site{store: store, index: x, plan: planUploads(videos), producers: map[string]*producer.Producer[job]{}, finished: make(chan struct{}), isDone: map[job]bool{}}
	for _, c := range classes {
		s.producers[c.name] = producer.New(c.queue, &producer.Options[job]{Create: true, Wakeups: wakeups})
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

// visit uploads what one visitor has.
func (s *site) visit(ctx context.Context, visitor int) error {
	for i, u := range s.plan {
		if u.visitor != visitor || ctx.Err() != nil {
			continue
		}
		if err := s.accept(ctx, u, uint64(i)); err != nil && ctx.Err() == nil {
			return fmt.Errorf("upload %s: %w", u.video, err)
		}
	}
	return nil
}

// Halt does nothing: Run ends with its context.
func (*site) Halt() {}

// accept stores an upload before it enqueues its job: a job without its upload would fail.
func (s *site) accept(ctx context.Context, u upload, seed uint64) error {
	u.clip = film(u.clip.width, u.clip.height, frames, seed)
	version, err := s.keep(ctx, u)
	if err != nil {
		return err
	}
	sends := 1
	if u.twice {
		sends = 2
	}
	for range sends {
		if _, err := s.producers[u.class].Send(ctx, job{u.video, version, time.Now()}, nil); err != nil {
			return err
		}
	}
	return nil
}

// keep stores an upload with its credits as the next version of its video. No upload replaces another, so workers that come late read
// what was meant for them; of two visitors who upload a video at once, one gets the version behind the other's.
func (s *site) keep(ctx context.Context, u upload) (version int64, err error) {
	metadata, err := u.credits.Metadata()
	if err != nil {
		return 0, err
	}
	for {
		if version, err = s.latest(ctx, u.video); err != nil {
			return 0, err
		}
		version++
		err := s.store.Create(ctx, uploadRef(u.video, version), bytes.NewReader(u.content()), &blob.PutOptions{Metadata: metadata})
		if !errors.Is(err, blob.ErrExists) {
			return version, err
		}
	}
}

// latest returns the last version of a video that was uploaded; 0 if there is none. The index may know of uploads that the store
// has no more.
func (s *site) latest(ctx context.Context, video string) (version int64, err error) {
	known, err := s.index.Video(ctx, video)
	if err != nil {
		return 0, err
	}
	version = known.Version
	for info, err := range s.store.List(ctx, uploads, video+"/") {
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseInt(strings.TrimPrefix(info.Ref.Name, video+"/"), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s is no upload: %w", info.Ref, err)
		}
		version = max(version, n)
	}
	return version, nil
}

// done is told of each upload that needs no worker any more.
func (s *site) done(video string, version int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := job{Video: video, Version: version}
	if s.isDone[key] {
		return
	}
	if s.isDone[key] = true; len(s.isDone) == len(s.plan) {
		close(s.finished)
	}
}

// open returns how many uploads are not done.
func (s *site) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.plan) - len(s.isDone)
}
