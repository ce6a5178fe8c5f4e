package main

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/queue"
)

var (
	errPower = errors.New("the process is dead")
	errFault = errors.New("injected fault")
)

// power is the power supply of a process. When it is off, nothing that the process does has an effect. A test that tries every
// number of operations interrupts the process between any two steps.
type power struct {
	mu     sync.Mutex
	left   int           // operations until the power fails, before every second one and after the others; negative: never; guarded by mu
	after  bool          // whether the last one takes effect
	off    bool          // guarded by mu
	failed chan struct{} // closed when it is off

	// fault, if set, says whether an operation fails, and whether it takes effect all the same.
	fault func() (before, after bool)

	pace time.Duration // how long each operation takes
}

func newPower(operations int) *power { return &power{left: operations, failed: make(chan struct{})} }

func (p *power) on() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.off {
		return errPower
	}
	return nil
}

func (p *power) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail()
}

// fail requires mu.
func (p *power) fail() {
	if !p.off {
		p.off = true
		close(p.failed)
	}
}

// do does one operation, as far as there is power.
func (p *power) do(operation func() error) error {
	p.mu.Lock()
	last := p.left == 0
	p.left--
	if last && !p.after {
		p.fail()
	}
	off := p.off
	p.mu.Unlock()
	if off {
		return errPower
	}
	time.Sleep(p.pace)
	before, after := false, false
	if p.fault != nil {
		before, after = p.fault()
	}
	if before {
		return errFault
	}
	err := operation()
	if last {
		p.cut()
	}
	if p.on() != nil {
		return errPower
	}
	if after {
		return errors.Join(err, errFault)
	}
	return err
}

// poweredStore is a store as one process sees it.
type poweredStore struct {
	next  blob.Store
	power *power
}

func (s *poweredStore) Put(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	return s.power.do(func() error { return s.next.Put(ctx, ref, r, o) })
}

func (s *poweredStore) Create(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	return s.power.do(func() error { return s.next.Create(ctx, ref, r, o) })
}

func (s *poweredStore) Open(ctx context.Context, ref blob.Ref) (r *blob.Reader, err error) {
	err = s.power.do(func() error { r, err = s.next.Open(ctx, ref); return err })
	return r, err
}

func (s *poweredStore) Stat(ctx context.Context, ref blob.Ref) (info blob.Info, err error) {
	err = s.power.do(func() error { info, err = s.next.Stat(ctx, ref); return err })
	return info, err
}

func (s *poweredStore) Delete(ctx context.Context, ref blob.Ref) error {
	return s.power.do(func() error { return s.next.Delete(ctx, ref) })
}

func (s *poweredStore) List(ctx context.Context, container, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		if err := s.power.do(func() error { return nil }); err != nil {
			yield(blob.Info{}, err)
			return
		}
		s.next.List(ctx, container, prefix)(yield)
	}
}

// poweredBooks are books as one process sees them.
type poweredBooks struct {
	next  ledger
	power *power
}

func (b *poweredBooks) Record(ctx context.Context, batch *books.Batch, parts iter.Seq2[*books.Part, error]) (first bool, err error) {
	err = b.power.do(func() error { first, err = b.next.Record(ctx, batch, parts); return err })
	return first, err
}

// poweredAccount is an account as one process sees it.
type poweredAccount struct {
	queue.Account
	power *power
}

func (a *poweredAccount) Open(name string) (queue.Manager, error) {
	q, err := a.Account.Open(name)
	return &poweredQueue{q, a.power}, err
}

type poweredQueue struct {
	queue.Manager
	power *power
}

func (q *poweredQueue) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (m queue.Message, err error) {
	err = q.power.do(func() error { m, err = q.Manager.Enqueue(ctx, text, o); return err })
	return m, q.unknown(err)
}

func (q *poweredQueue) Dequeue(ctx context.Context, n int, visibility time.Duration) (ms []queue.Message, err error) {
	if err := q.power.on(); err != nil {
		return nil, q.unknown(err)
	}
	// Polls are no steps: how many there are says nothing.
	ms, err = q.Manager.Dequeue(ctx, n, visibility)
	if len(ms) == 0 {
		return ms, err
	}
	if err := q.power.do(func() error { return nil }); err != nil {
		return nil, q.unknown(err) // the messages stay hidden
	}
	return ms, err
}

func (q *poweredQueue) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (fresh queue.Lease, err error) {
	err = q.power.do(func() error { fresh, err = q.Manager.Update(ctx, l, text, visibility); return err })
	return fresh, q.unknown(err)
}

func (q *poweredQueue) Delete(ctx context.Context, l queue.Lease) error {
	return q.unknown(q.power.do(func() error { return q.Manager.Delete(ctx, l) }))
}

func (q *poweredQueue) Sibling(suffix string) queue.Queue {
	return &poweredQueue{q.Manager.Sibling(suffix).(queue.Manager), q.power}
}

// unknown makes a fault one of the network.
func (q *poweredQueue) unknown(err error) error {
	if errors.Is(err, errPower) || errors.Is(err, errFault) {
		return &queue.Error{Op: "request", Queue: q.Name(), Kind: queue.ErrOutcomeUnknown, Err: err}
	}
	return err
}
