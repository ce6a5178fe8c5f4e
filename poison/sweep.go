package poison

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/internal/browse"
	"github.com/millrace/millrace/internal/naming"
	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
)

// sweep goes through a poison queue once, and sends, or only deletes, what the filter chooses.
type sweep struct {
	Options
	cause request.Cause // of all requests
	plan  func(e *poisonrecord.Entry, now time.Time) (*send, error)

	next   time.Time // when the rate allows another page
	chosen int       // by the filter, so far

	mu       sync.Mutex
	report   Summary              // guarded by mu
	fatal    error                // ends the sweep; guarded by mu
	panicked any                  // by Progress; guarded by mu
	missing  map[queue.Name]error // destinations that do not exist; guarded by mu
}

// run goes through the queue.
func (s *sweep) run(ctx context.Context) (Summary, error) {
	s.Parallel = max(s.Parallel, 1)
	s.Lease = cmp.Or(s.Lease, browse.DefaultLease)
	s.missing = make(map[queue.Name]error)
	err := s.pages(request.WithCause(ctx, s.cause))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fatal != nil {
		err = s.fatal
	}
	return s.report.clone(), err
}

// pages works on page after page until all is done, ctx ends, or the sweep has failed.
func (s *sweep) pages(ctx context.Context) error {
	before := func(ctx context.Context) error { // until the rate allows another page
		waiting.For(time.Until(s.next), ctx.Done())
		return context.Cause(ctx)
	}
	size := queue.MaxBatch
	if s.Rate > 0 && !s.DryRun { // no more than a second's worth: nothing is held while the sweep waits for its rate
		size = int(min(max(math.Ceil(s.Rate), 1), queue.MaxBatch))
	}
	for page, err := range browse.Pages(ctx, s.From, &browse.Options{Page: size, Lease: s.Lease, Before: before}) {
		if err != nil {
			return err
		}
		began, chosen := time.Now(), s.chosen
		s.work(ctx, s.choose(page), page.Now)
		if s.Rate > 0 && !s.DryRun {
			s.next = began.Add(time.Duration(float64(s.chosen-chosen) / s.Rate * float64(time.Second)))
		}
		if s.fatal != nil || s.Max > 0 && s.chosen >= s.Max {
			return nil
		}
	}
	return nil
}

// candidate is a message that the filter chooses.
type candidate struct {
	leased *browse.Message
	entry  poisonrecord.Entry
}

// choose returns the messages of a page that are to be worked on.
func (s *sweep) choose(page *browse.Page) (chosen []candidate) {
	filter := poisonrecord.Filter(s.Filter)
	for _, m := range page.Messages {
		c := candidate{m, poisonrecord.NewEntry(m.Message)}
		if filter.Chooses(&c.entry, page.Now) && (s.Max == 0 || s.chosen+len(chosen) < s.Max) {
			chosen = append(chosen, c)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Depth = page.Depth
	s.report.Seen += len(page.Messages)
	s.notify()
	return chosen
}

// work works on the chosen messages of a page, so many at a time. When it returns nothing of it
// runs any more. A panic of Progress comes out of it, on the caller's goroutine.
func (s *sweep) work(ctx context.Context, chosen []candidate, now time.Time) {
	var working errgroup.Group
	working.SetLimit(s.Parallel)
	for _, c := range chosen {
		working.Go(func() error {
			s.workOn(ctx, c, now)
			return nil
		})
	}
	_ = working.Wait()
	if s.panicked != nil {
		panic(s.panicked)
	}
}

// workOn sends and deletes one message, and counts what became of it. When the sweep ends, or too
// little is left of the lease, it leaves the message to a later page or sweep.
func (s *sweep) workOn(ctx context.Context, c candidate, now time.Time) {
	if ctx.Err() != nil || s.failed() || time.Since(c.leased.Asked) > s.Lease/2 {
		c.leased.Again()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.report.Seen-- // until a later page
		return
	}
	sent, err := s.plan(&c.entry, now)
	switch {
	case errors.Is(err, errExpired):
		s.count(c, Counts{Expired: 1}, err)
		return
	case err != nil:
		s.count(c, Counts{Skipped: 1}, err)
		return
	case s.DryRun:
		s.count(c, Counts{Done: 1}, nil)
		return
	}
	became := Counts{Done: 1}
	if sent != nil {
		doubled, err := s.send(ctx, c, sent)
		if err != nil {
			s.count(c, Counts{Failed: 1, Doubled: doubled}, fmt.Errorf("send it to %v: %w", sent.to.Name(), err))
			return
		}
		became.Doubled = doubled
	}
	s.delete(ctx, c, became)
}

// send sends a message as long as its lease allows, and reports whether it may be there twice.
func (s *sweep) send(ctx context.Context, c candidate, m *send) (doubled int, err error) {
	s.mu.Lock()
	err = s.missing[m.to.Name()]
	s.mu.Unlock()
	if err != nil {
		return 0, err
	}
	// The end of ctx does not cancel a send: its outcome would be unknown.
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), c.leased.Asked.Add(s.Lease*3/4))
	defer cancel()
	err = retry.Do(ctx, string(c.entry.ID), queue.Transient, func(ctx context.Context) error {
		_, err := m.to.Enqueue(ctx, m.text, &queue.EnqueueOptions{TTL: m.ttl})
		if errors.Is(err, queue.ErrOutcomeUnknown) {
			doubled = 1
		}
		return err
	})
	switch {
	case err == nil:
	case errors.Is(err, queue.ErrQueueMissing):
		s.mu.Lock()
		s.missing[m.to.Name()] = err
		s.mu.Unlock()
	case queue.Transient(err), errors.Is(err, queue.ErrUnauthorized):
		s.fail(err)
	}
	return doubled, err
}

// delete deletes a message that was sent, or only chosen, and counts it.
func (s *sweep) delete(ctx context.Context, c candidate, became Counts) {
	c.leased.Settle() // whatever comes of it: if it was not deleted its lease ends by itself
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), c.leased.Asked.Add(s.Lease))
	defer cancel()
	unknown := false
	err := retry.Do(ctx, string(c.entry.ID), queue.Transient, func(ctx context.Context) error {
		err := s.From.Delete(ctx, c.leased.Lease)
		if errors.Is(err, queue.ErrMessageGone) && unknown { // that try deleted it
			return nil
		}
		unknown = unknown || errors.Is(err, queue.ErrOutcomeUnknown)
		return err
	})
	if err == nil {
		s.count(c, became, nil)
		return
	}
	if !errors.Is(err, queue.ErrLeaseLost) {
		s.fail(err)
	}
	if s.cause == request.CausePurge {
		s.count(c, Counts{Failed: 1}, fmt.Errorf("delete it: %w", err))
		return
	}
	became.Doubled = 1
	s.count(c, became, fmt.Errorf("it was sent, but not deleted, and may be sent again: %w", err))
}

func (s *sweep) count(c candidate, became Counts, problem error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chosen++
	s.report.count(c.entry.Record.Reason, became, problem)
	s.notify()
}

// errPanicked ends the work on a page. Nobody sees it, because the panic goes on.
var errPanicked = errors.New("a function of the caller panicked")

// notify calls Progress. A panic in it ends the sweep. Requires mu.
func (s *sweep) notify() {
	if s.Progress == nil || s.panicked != nil {
		return
	}
	defer func() {
		if s.panicked = recover(); s.panicked != nil {
			s.fatal = errPanicked
		}
	}()
	s.Progress(s.report.clone())
}

// fail ends the sweep after what is under way.
func (s *sweep) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fatal = cmp.Or(s.fatal, err)
}

func (s *sweep) failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fatal != nil
}

// Counts are numbers of messages that the filter chose.
type Counts struct {
	Done    int `json:"done"`    // sent and deleted by a redrive, or deleted by a purge; in a dry run, that would be
	Expired int `json:"expired"` // left where they are because their life has ended
	Skipped int `json:"skipped"` // left where they are for another reason
	Failed  int `json:"failed"`  // left where they are because a request failed

	// Doubled were sent but possibly not deleted, or possibly sent twice, because a request
	// failed or took longer than the lease. They are among the others.
	Doubled int `json:"doubled"`
}

func (c *Counts) add(other Counts) {
	c.Done += other.Done
	c.Expired += other.Expired
	c.Skipped += other.Skipped
	c.Failed += other.Failed
	c.Doubled += other.Doubled
}

// Summary says what a [Redrive] or a [Purge] has done.
type Summary struct {
	Counts

	// Depth is how many messages the poison queue had at the start, hidden and expired ones
	// included; -1 if it may not be read.
	Depth int64 `json:"depth"`

	// Seen is how many of them were looked at. The rest was hidden: others work on it, or one
	// that was killed did and its lease has not ended.
	Seen int `json:"seen"`

	// ByReason has the numbers by the reason in the record; "" is for foreign messages.
	ByReason map[Reason]Counts `json:"byReason"`

	// Problems says why messages were not redriven or purged, or may be there twice, and how many
	// messages that holds for. The text is that of the first of them: texts that differ only in
	// numbers and ids are one. There are at most 20.
	Problems map[string]int `json:"problems"`
}

// maxProblems bounds the kinds of problems in a report.
const maxProblems = 20

// clone returns a copy that later changes leave as it is.
func (r *Summary) clone() Summary {
	c := *r
	c.ByReason = maps.Clone(r.ByReason)
	c.Problems = maps.Clone(r.Problems)
	return c
}

// count adds what became of one message.
func (r *Summary) count(reason Reason, c Counts, problem error) {
	r.add(c)
	if r.ByReason == nil {
		r.ByReason = make(map[Reason]Counts)
	}
	sum := r.ByReason[reason]
	sum.add(c)
	r.ByReason[reason] = sum
	if problem == nil {
		return
	}
	kind := naming.Fingerprint(problem.Error())
	for text := range r.Problems {
		if naming.Fingerprint(text) == kind {
			r.Problems[text]++
			return
		}
	}
	if r.Problems == nil {
		r.Problems = make(map[string]int)
	}
	if len(r.Problems) < maxProblems {
		r.Problems[problem.Error()] = 1
	}
}
