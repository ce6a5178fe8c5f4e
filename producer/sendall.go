package producer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/queue"
)

// defaultConcurrency is how many jobs SendAll sends at once. The service takes 2,000 messages a
// second on a queue, which is as many as 32 requests of 16 ms at a time.
const defaultConcurrency = 32

// SendAllOptions configure one [Producer.SendAll] or [Producer.SendAllSeq]. Nil and the zero value
// mean the defaults.
type SendAllOptions[T any] struct {
	// Concurrency is how many messages are sent at once. Negative is an error. Defaults to 32.
	Concurrency int

	// PerMessage packs jobs: at most this many share a message, as a group (see
	// [Producer.SendGroup]), at the cost of one request. A message is full when it has this many,
	// or when the next job does not fit into its 64 KiB, or below Options.Claims.Limit; a large
	// number such as 10,000 fills every message. Only neighbours with equal options share one, so
	// sort the jobs by Key. A job with a JobID or a DedupeKey, or too large to share, has a message
	// of its own, and is stored with Claims if it needs that. Jobs are encoded one after the other,
	// and wait until their message is full or the sequence ends. Workers handle and retry each job
	// separately. More than 1 needs an envelope. Negative is an error. Defaults to 1, a message for
	// each job.
	PerMessage int

	// Options returns the options of a job with its index, from 0. It is called once for each
	// job, one after the other. Defaults to those of a nil [SendOptions].
	Options func(index int, job T) SendOptions

	// Report receives what became of each job, one after the other and in no order; SendAll then
	// keeps no results, about 300 bytes a job, and returns none. Defaults to none.
	Report func(Result)
}

// Result is what became of one job of a [Producer.SendAll] or [Producer.SendAllSeq].
type Result struct {
	Index int   // of the job in the slice or sequence, from 0
	Sent  Sent  // zero if Err is not nil
	Err   error // as Send returns it; nil if the job was accepted

	// Item is the index of the job in its message, from 0, and Items the number of jobs in the
	// message, as the handler sees them. They share Sent: an unknown outcome, MaybeTwice, and
	// Cancel concern all of them. Both are 0 if the message has only this job, or if Err is not nil.
	Item, Items int
}

// SendAll sends all jobs, several at a time and in no order, each as [Producer.Send] does, or in
// groups with SendAllOptions.PerMessage. It
// returns the results and errors of [Producer.SendAllSeq], which does the same for a sequence.
func (p *Producer[T]) SendAll(ctx context.Context, jobs []T, o *SendAllOptions[T]) ([]Result, error) {
	return p.sendAll(ctx, slices.Values(jobs), len(jobs), o)
}

// SendAllSeq sends all jobs of a sequence, several at a time and in no order, each as
// [Producer.Send] does. It returns when no request is under way any more, with a result for every job that it took,
// in the order of the sequence. The error is nil if the sequence ended and all jobs were accepted.
//
// The next job is taken only when its message can be sent at once, so a sequence need not fit into memory;
// with a Report its results need not either. A job that cannot be sent as it is, such as one that
// is too large, stops no other. No further job is taken when the context ends, and after an error
// that would meet every job: the queue is missing, access is denied, or the service did not accept
// a job, or the store its body, within Options.Timeout. Of a sender over several queues one that does so is
// enough. To go on after that, send the jobs without a result and those with
// an error; [queue.ErrOutcomeUnknown] tells which of these may be in the queue already.
//
// With Options.Wakeups an event follows the last job, and before that whatever has waited a second for
// one, because a sequence may be endless.
//
// A panic of the sequence, of the codec or of another function of the options comes out of SendAllSeq
// when no request is under way any more.
func (p *Producer[T]) SendAllSeq(ctx context.Context, jobs iter.Seq[T], o *SendAllOptions[T]) ([]Result, error) {
	return p.sendAll(ctx, jobs, 0, o)
}

// sendAll is SendAllSeq of a sequence with about this many jobs: to move results into larger memory
// costs as much as a Send.
func (p *Producer[T]) sendAll(ctx context.Context, jobs iter.Seq[T], expected int, o *SendAllOptions[T]) ([]Result, error) {
	if err := p.ready(); err != nil {
		return nil, err
	}
	s := &sendAll[T]{producer: p, stopped: make(chan struct{})}
	if o != nil {
		s.options = *o
	}
	switch {
	case s.options.Concurrency < 0:
		return nil, fmt.Errorf("send to %v: Concurrency %d is negative", p.queue.Name(), s.options.Concurrency)
	case s.options.Concurrency == 0:
		s.options.Concurrency = defaultConcurrency
	}
	if n := s.options.PerMessage; n < 0 {
		return nil, fmt.Errorf("send to %v: PerMessage %d is negative", p.queue.Name(), n)
	} else if n > 1 {
		if err := p.checkGroup(1); err != nil {
			return nil, fmt.Errorf("send to %v: PerMessage %d: %w", p.queue.Name(), n, err)
		}
	}
	s.slots = make(chan struct{}, s.options.Concurrency)
	s.work = make(chan message[T])
	if s.options.Report == nil && expected > 0 {
		s.results = make([]Result, 0, expected)
	}
	s.collector = &collector{wakeups: p.wakeups, dirty: make(chan struct{}, 1), hints: make(map[queue.Name]*hints)}
	ended := s.run(ctx, jobs)
	if s.panicked != nil {
		panic(s.panicked)
	}
	return s.results, s.err(ended)
}

type sendAll[T any] struct {
	producer  *Producer[T]
	options   SendAllOptions[T]
	slots     chan struct{}   // one element for each message on its way
	work      chan message[T] // to the workers
	workers   int             // that were started
	running   sync.WaitGroup  // of the workers
	taken     int
	collector *collector

	reporting sync.Mutex // held while Report runs

	mu       sync.Mutex
	stopped  chan struct{} // closed when no further job is taken; guarded by mu
	stopping bool          // stopped is closed; guarded by mu
	results  []Result      // by index, unless there is a Report; guarded by mu
	failed   int           // how many jobs were not accepted; guarded by mu
	first    Result        // that of them with the lowest index; guarded by mu
	panicked error         // a panic on one of our goroutines; guarded by mu
}

// message is one job, or with PerMessage the jobs that share a message.
type message[T any] struct {
	options *SendOptions
	index   int  // of the job
	job     T    // not used if packed
	packed  pack // empty without PerMessage
}

// run takes and sends jobs. It returns why it took no more before the sequence ended, or nil.
func (s *sendAll[T]) run(ctx context.Context, jobs iter.Seq[T]) (ended error) {
	defer s.collect(ctx)()
	defer s.running.Wait() // also when the sequence panics
	defer close(s.work)
	if ended = s.acquire(ctx); ended != nil {
		return ended
	}
	if s.options.PerMessage > 1 {
		return s.pack(ctx, jobs)
	}
	for job := range jobs {
		i, o := s.take(job)
		s.start(ctx, message[T]{options: o, index: i, job: job})
		if ended = s.acquire(ctx); ended != nil {
			return ended
		}
	}
	return nil
}

// take returns the index and the options of a job, which has a result from here on.
func (s *sendAll[T]) take(job T) (index int, o *SendOptions) {
	index = s.taken
	s.taken++
	if s.options.Options != nil {
		own := s.options.Options(index, job)
		o = &own
	}
	if s.options.Report == nil {
		s.mu.Lock()
		s.results = append(s.results, Result{Index: index})
		s.mu.Unlock()
	}
	return index, o
}

// start sends a message, for which a slot was acquired. The goroutines are kept, because growing a
// stack for a request costs as much as the rest of a Send.
func (s *sendAll[T]) start(ctx context.Context, m message[T]) {
	if s.workers == s.options.Concurrency {
		s.work <- m // one of them has just given its slot back
		return
	}
	s.workers++
	s.running.Go(func() {
		for more := true; more; m, more = <-s.work {
			s.send(ctx, m)
		}
	})
}

// collect publishes events for what is sent until the function that it returns is called.
func (s *sendAll[T]) collect(ctx context.Context) (end func()) {
	if s.producer.wakeups == nil {
		return func() {}
	}
	ended := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		s.contained(func() { s.collector.run(ctx, ended) })
	})
	return func() {
		close(ended)
		running.Wait()
		s.contained(func() { s.collector.publish(ctx) })
	}
}

// errStopped means that one job's error would meet every other.
var errStopped = errors.New("no further job was taken")

// mayTake returns an error if no further job may be taken.
func (s *sendAll[T]) mayTake(ctx context.Context) error {
	select {
	case <-ctx.Done(): // first, because select draws lots
		return context.Cause(ctx)
	case <-s.stopped:
		return errStopped
	default:
		return nil
	}
}

// acquire waits until another message can be sent at once. It returns an error if no further job
// may be taken.
func (s *sendAll[T]) acquire(ctx context.Context) error {
	if err := s.mayTake(ctx); err != nil {
		return err
	}
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.stopped:
		return errStopped
	}
	err := s.mayTake(ctx) // what gave the slot back may have stopped the rest
	if err != nil {
		<-s.slots
	}
	return err
}

// send sends a message and records what became of its jobs.
func (s *sendAll[T]) send(ctx context.Context, m message[T]) {
	defer func() { <-s.slots }()
	s.contained(func() {
		if len(m.packed.bodies) > 0 {
			s.sendPacked(ctx, m.options, m.packed.bodies, m.packed.indexes)
			return
		}
		sent, err := s.producer.sendJob(ctx, m.job, m.options, s.collector.add)
		s.record(Result{Index: m.index, Sent: sent, Err: err})
	})
}

// errGoexit is a panic in place of a runtime.Goexit, such as that of t.FailNow.
var errGoexit = errors.New("a function of the options has ended its goroutine")

// contained calls f. A panic in it ends the SendAll.
func (s *sendAll[T]) contained(f func()) {
	returned := false
	defer func() {
		v := recover()
		switch {
		case returned:
			return
		case v == nil:
			v = errGoexit
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.panicked == nil {
			s.panicked = &panicError{v, debug.Stack()}
		}
		s.stop()
	}()
	f()
	returned = true
}

func (s *sendAll[T]) record(r Result) {
	s.mu.Lock()
	if s.options.Report == nil {
		s.results[r.Index] = r
	}
	if r.Err != nil {
		if s.failed == 0 || r.Index < s.first.Index {
			s.first = r
		}
		s.failed++
		if meetsAll(r.Err) {
			s.stop()
		}
	}
	s.mu.Unlock()
	if s.options.Report != nil {
		s.reporting.Lock()
		defer s.reporting.Unlock()
		s.options.Report(r)
	}
}

// stop lets no further job be taken. Requires mu.
func (s *sendAll[T]) stop() {
	if !s.stopping {
		s.stopping = true
		close(s.stopped)
	}
}

// meetsAll reports whether the error of one job would be that of every other.
func meetsAll(err error) bool {
	for _, one := range [...]error{queue.ErrUnauthorized, queue.ErrQueueMissing, queue.ErrQueueBeingDeleted,
		queue.ErrThrottled, queue.ErrUnavailable, queue.ErrOutcomeUnknown, blob.ErrUnavailable, blob.ErrUnauthorized} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

// err returns the error of SendAll. All goroutines have ended.
func (s *sendAll[T]) err(ended error) error {
	if s.failed > 0 {
		err := fmt.Errorf("%d of %d jobs were not accepted, the first with index %d: %w", s.failed, s.taken, s.first.Index, s.first.Err)
		if ended != nil && !errors.Is(err, ended) {
			err = fmt.Errorf("%w; %w after %d jobs", err, ended, s.taken)
		}
		return err
	}
	if ended != nil {
		return fmt.Errorf("send to %v: %w after %d jobs, which were all accepted", s.producer.queue.Name(), ended, s.taken)
	}
	return nil
}

// panicError is what SendAll panics with after a panic on a goroutine of its own.
type panicError struct {
	value any
	stack []byte
}

// Error returns the text of the panic and where it came from.
func (e *panicError) Error() string { return fmt.Sprintf("%v\n\n%s", e.value, e.stack) }

// Unwrap returns the value if it is an error.
func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}
