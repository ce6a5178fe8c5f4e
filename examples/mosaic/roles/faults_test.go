package roles

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/queue"
)

// faults decides what fails, as a function of a seed, the operation and how often it was called. So a
// seed repeats the same faults, as far as they do not depend on the order of goroutines.
type faults struct {
	seed uint64
	rate int           // in 1,000
	slow time.Duration // the longest an operation takes, half before its effect and half after

	mu    sync.Mutex
	times map[string]int // guarded by mu
	hits  int            // guarded by mu
}

var errFault = errors.New("injected fault")

// roll returns a number of 0…999 for the next occurrence of an operation.
func (f *faults) roll(op string) int {
	f.mu.Lock()
	n := f.times[op]
	f.times[op]++
	f.mu.Unlock()
	h := fnv.New64a()
	fmt.Fprint(h, f.seed, op, n)
	sum := h.Sum64()
	sum ^= sum >> 29 // FNV alone is weak in its upper bits
	sum *= 0xbf58476d1ce4e5b9
	return int((sum >> 33) % 1000)
}

// around calls an operation, and may fail before or after its effect.
func (f *faults) around(op string, do func() error) error {
	roll := f.roll(op)
	if f.slow > 0 {
		took := f.slow * time.Duration(f.roll("time of "+op)) / 2000
		time.Sleep(took)
		defer time.Sleep(took)
	}
	if roll < 2*f.rate {
		f.mu.Lock()
		f.hits++
		f.mu.Unlock()
	}
	if roll < f.rate {
		return fmt.Errorf("before %s: %w", op, errFault)
	}
	if err := do(); err != nil {
		return err
	}
	if roll < 2*f.rate {
		return fmt.Errorf("after %s: %w", op, errFault)
	}
	return nil
}

func (f *faults) happened() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hits
}

// power is the power supply of a process. When it is off, the operations of the process have no effect
// and no result.
type power struct{ off atomic.Bool }

var errPower = errors.New("the process is dead")

func (p *power) on() error {
	if p.off.Load() {
		return errPower
	}
	return nil
}

// faultyStore is a store as one process sees it.
type faultyStore struct {
	next   blob.Store
	faults *faults
	power  *power
	made   atomic.Int64 // mosaics that this process started to store
}

func (s *faultyStore) do(op string, ref blob.Ref, do func() error) error {
	if err := s.power.on(); err != nil {
		return err
	}
	return s.faults.around(op+" "+ref.String(), do)
}

func (s *faultyStore) Put(ctx context.Context, ref blob.Ref, r io.Reader) error {
	return s.do("put", ref, func() error { return s.next.Put(ctx, ref, s.powered(r)) })
}

func (s *faultyStore) Create(ctx context.Context, ref blob.Ref, r io.Reader) error {
	if ref.Container == imageOutput {
		s.made.Add(1)
	}
	return s.do("create", ref, func() error { return s.next.Create(ctx, ref, s.powered(r)) })
}

func (s *faultyStore) Open(ctx context.Context, ref blob.Ref) (r *blob.Reader, err error) {
	err = s.do("open", ref, func() error { r, err = s.next.Open(ctx, ref); return err })
	return r, err
}

func (s *faultyStore) Size(ctx context.Context, ref blob.Ref) (n int64, err error) {
	err = s.do("size", ref, func() error { n, err = s.next.Size(ctx, ref); return err })
	return n, err
}

func (s *faultyStore) Delete(ctx context.Context, ref blob.Ref) error {
	return s.do("delete", ref, func() error { return s.next.Delete(ctx, ref) })
}

func (s *faultyStore) List(ctx context.Context, container, prefix string) iter.Seq2[blob.Ref, error] {
	return func(yield func(blob.Ref, error) bool) {
		if err := s.do("list", blob.Ref{Container: container, Name: prefix}, func() error { return nil }); err != nil {
			yield(blob.Ref{}, err)
			return
		}
		s.next.List(ctx, container, prefix)(yield)
	}
}

// powered interrupts a write when the power fails.
func (s *faultyStore) powered(r io.Reader) io.Reader { return poweredReader{r, s.power} }

type poweredReader struct {
	r     io.Reader
	power *power
}

func (p poweredReader) Read(b []byte) (int, error) {
	if err := p.power.on(); err != nil {
		return 0, err
	}
	return p.r.Read(b)
}

// faultyQueue is a queue as one process sees it. It sometimes accepts a message twice, and sometimes
// redelivers one soon, while it is still being handled.
type faultyQueue struct {
	queue.Queue
	faults *faults
	power  *power
	sent   *atomic.Int64
}

func (q *faultyQueue) do(op string, do func() error) error {
	if err := q.power.on(); err != nil {
		return err
	}
	return q.faults.around(op+" "+q.Name().Queue, do)
}

func (q *faultyQueue) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (m queue.Message, err error) {
	err = q.do("enqueue", func() error {
		m, err = q.Queue.Enqueue(ctx, text, o)
		q.sent.Add(1)
		if q.faults.roll("duplicate "+q.Name().Queue) < 3*q.faults.rate {
			_, again := q.Queue.Enqueue(ctx, text, o)
			err = errors.Join(err, again)
		}
		return err
	})
	return m, err
}

func (q *faultyQueue) Dequeue(ctx context.Context, n int, visibility time.Duration) (batch []queue.Message, err error) {
	err = q.do("dequeue", func() error {
		if q.faults.roll("hasty "+q.Name().Queue) < 3*q.faults.rate {
			visibility = time.Second
		}
		batch, err = q.Queue.Dequeue(ctx, n, visibility)
		return err
	})
	if err != nil {
		return nil, err // a lost response leaves its messages hidden
	}
	return batch, nil
}

func (q *faultyQueue) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (fresh queue.Lease, err error) {
	err = q.do("update", func() error { fresh, err = q.Queue.Update(ctx, l, text, visibility); return err })
	return fresh, err
}

func (q *faultyQueue) Delete(ctx context.Context, l queue.Lease) error {
	return q.do("delete", func() error { return q.Queue.Delete(ctx, l) })
}

func (q *faultyQueue) Properties(ctx context.Context) (p queue.Properties, err error) {
	if err := q.power.on(); err != nil {
		return p, err
	}
	return q.Queue.Properties(ctx)
}

func (q *faultyQueue) Sibling(suffix string) queue.Queue {
	return &faultyQueue{q.Queue.Sibling(suffix), q.faults, q.power, new(atomic.Int64)}
}
