package limits

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
)

// The metadata of a token queue.
const (
	limitKey = "millracelimit"  // what the limit is
	setKey   = "millracetokens" // the set of tokens that count
	readyKey = "millraceready"  // the set is complete
)

const (
	mintLease = 30 * time.Second // how long blank tokens are hidden while they are made worth something
	sealDelay = 10 * time.Second // how long finished tokens are hidden from the set-up, which looks for blanks

	// readyAtOnce is how many tokens the set-up makes visible when it is done. The others become visible by themselves.
	readyAtOnce = 4 * queue.MaxBatch
	lookAgain   = time.Second // between looks at a queue in which nothing is visible
)

// board is the metadata of a token queue.
type board struct {
	limit, set string
	ready      bool
	depth      int64
}

func readBoard(ctx context.Context, q queue.Queue) (board, error) {
	p, err := q.Properties(ctx)
	if err != nil {
		return board{}, err
	}
	b := board{depth: p.Depth}
	for name, value := range p.Metadata { // names come in any case
		switch {
		case strings.EqualFold(name, limitKey):
			b.limit = value
		case strings.EqualFold(name, setKey):
			b.set = value
		case strings.EqualFold(name, readyKey):
			b.ready = true
		}
	}
	return b, nil
}

// check returns an error if the queue does not hold the tokens of this limit.
func (b board) check(name queue.Name, limit string) error {
	switch {
	case b.limit == "" || b.set == "":
		return fmt.Errorf("queue %v exists and is not a queue of tokens: choose another name, or drop it", name)
	case b.limit != limit:
		return fmt.Errorf("the tokens of queue %v are for the limit «%s», not for «%s»: to change a limit use a new queue, or stop all that use this one, drop it and call Init again", name, b.limit, limit)
	}
	return nil
}

// initialize creates the queue with exactly n tokens. Who creates it wins, because only one set of
// metadata can; everybody else waits until it is ready.
func initialize(ctx context.Context, q queue.Manager, limit string, n int) error {
	ctx = request.WithCause(ctx, request.CauseLimit)
	set := strings.ToLower(rand.Text())
	metadata := map[string]string{limitKey: limit, setKey: set}
	err := retry.Do(ctx, set, queue.Transient, func(ctx context.Context) error { return q.Create(ctx, metadata) })
	if errors.Is(err, queue.ErrQueueExists) {
		return awaitReady(ctx, q, limit)
	}
	if err != nil {
		return fmt.Errorf("creating the queue of tokens %v: %w", q.Name(), err)
	}
	m := &mint{queue: q, set: set, total: n, bound: make(map[queue.ID]int), done: make([]bool, n)}
	if err := m.run(ctx); err != nil {
		return fmt.Errorf("setting up the tokens of %v: %w; drop the queue and call Init again", q.Name(), err)
	}
	metadata[readyKey] = "true"
	err = retry.Do(ctx, set, queue.Transient, func(ctx context.Context) error { return q.SetMetadata(ctx, metadata) })
	if err != nil {
		return fmt.Errorf("declaring the tokens of %v ready: %w; drop the queue and call Init again", q.Name(), err)
	}
	// A token that was taken meanwhile has another receipt. One that cannot be made visible now becomes so later.
	ctx, cancel := context.WithTimeout(ctx, sealDelay)
	defer cancel()
	for _, t := range m.hidden {
		_, _ = q.Update(ctx, t.Lease, t.Text, 0)
	}
	return nil
}

// awaitReady waits until whoever created the queue has set it up.
func awaitReady(ctx context.Context, q queue.Queue, limit string) error {
	for {
		var b board
		err := retry.Do(ctx, q.Name().Queue, queue.Transient, func(ctx context.Context) (err error) {
			b, err = readBoard(ctx, q)
			return err
		})
		if err != nil {
			return fmt.Errorf("reading the queue of tokens %v: %w", q.Name(), err)
		}
		if err := b.check(q.Name(), limit); err != nil || b.ready {
			return err
		}
		if !waiting.For(lookAgain, ctx.Done()) {
			return notReady(q.Name(), context.Cause(ctx))
		}
	}
}

// notReady is the error for a queue whose set-up has not ended.
func notReady(name queue.Name, cause error) error {
	err := fmt.Errorf("queue %v is not set up: another Init is at work, or was interrupted; in that case drop the queue and call Init again", name)
	if cause != nil {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// mint makes tokens. An enqueue whose response is lost may have added a message or not, and may even arrive later.
// So what is enqueued is blank and worth nothing: any number of blanks may be there. A token gets its worth by
// an update, which needs the receipt of that message, and each index is bound to one message for good. Only the
// creator of the queue mints, and nobody uses tokens before it is done.
type mint struct {
	queue queue.Queue
	set   string
	total int
	bound map[queue.ID]int // which index a message has, or may have
	done  []bool           // indices whose message is known to have it
	ready int              // how many are

	hidden []queue.Message // the newest finished tokens, up to readyAtOnce, which are hidden for a while
}

func (m *mint) run(ctx context.Context) error {
	for range m.total {
		err := retry.Do(ctx, m.set, queue.Transient, func(ctx context.Context) error {
			_, err := m.queue.Enqueue(ctx, textOf(m.set, blankIndex), nil)
			return err
		})
		if err != nil {
			return err
		}
	}
	for m.ready < m.total {
		var batch []queue.Message
		err := retry.Do(ctx, m.set, queue.Transient, func(ctx context.Context) (err error) {
			batch, err = m.queue.Dequeue(ctx, queue.MaxBatch, mintLease)
			return err
		})
		if err != nil {
			return err
		}
		for i := range batch {
			if err := m.see(ctx, &batch[i]); err != nil {
				return err
			}
		}
		if len(batch) == 0 && !waiting.For(lookAgain, ctx.Done()) {
			return fmt.Errorf("%d of %d tokens are done: %w", m.ready, m.total, context.Cause(ctx))
		}
	}
	return nil
}

// see looks at a message that was dequeued.
func (m *mint) see(ctx context.Context, msg *queue.Message) error {
	set, index, ok := parse(msg.Text)
	if !ok || set != m.set {
		_ = m.queue.Delete(ctx, msg.Lease) // not ours: whoever finds it next does it
		return nil
	}
	i, known := m.bound[msg.ID]
	switch {
	case index != blankIndex: // an update whose response was lost has taken effect
		if !known || i != index {
			return fmt.Errorf("message %s has the index %d that it was not given", msg.ID, index)
		}
		m.finish(i, *msg)
		return nil
	case !known && len(m.bound) == m.total: // a blank too many
		_ = m.queue.Delete(ctx, msg.Lease)
		return nil
	case !known:
		i = len(m.bound)
		m.bound[msg.ID] = i
	}
	done := *msg
	done.Text = textOf(m.set, i)
	err := retry.Do(ctx, string(msg.ID), queue.Transient, func(ctx context.Context) (err error) {
		done.Lease, err = m.queue.Update(ctx, msg.Lease, done.Text, sealDelay)
		return err
	})
	switch {
	case err == nil:
		m.finish(i, done)
	case errors.Is(err, queue.ErrLeaseLost): // by an earlier try, perhaps: the message will come up again and say so
	default:
		return err
	}
	return nil
}

// finish notes that a message is known to be a token.
func (m *mint) finish(i int, msg queue.Message) {
	if !m.done[i] {
		m.done[i] = true
		m.ready++
	}
	m.hidden = append(m.hidden, msg)
	m.hidden = m.hidden[max(len(m.hidden)-readyAtOnce, 0):]
}

// source is the queue of tokens as one process uses it.
type source struct {
	queue queue.Queue
	limit string // what the metadata of the queue must say
	total int    // how many tokens there are

	mu  sync.Mutex
	set string // the set that counts; guarded by mu
}

// openSource checks that the queue is set up for this limit.
func openSource(ctx context.Context, q queue.Queue, limit string, total int) (*source, error) {
	s := &source{queue: q, limit: limit, total: total}
	err := retry.Do(request.WithCause(ctx, request.CauseLimit), q.Name().Queue, queue.Transient, func(ctx context.Context) error {
		_, err := s.refresh(ctx)
		return err
	})
	if errors.Is(err, queue.ErrQueueMissing) {
		return nil, fmt.Errorf("there is no queue of tokens %v: call Init once, for example when the program is deployed: %w", q.Name(), err)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// refresh reads which set of tokens counts.
func (s *source) refresh(ctx context.Context) (board, error) {
	b, err := readBoard(ctx, s.queue)
	if err != nil {
		return b, err
	}
	if err := b.check(s.queue.Name(), s.limit); err != nil {
		return b, err
	}
	if !b.ready {
		return b, notReady(s.queue.Name(), nil)
	}
	s.mu.Lock()
	s.set = b.set
	s.mu.Unlock()
	return b, nil
}

// valid reports whether a message is a token that counts.
func (s *source) valid(m *queue.Message) bool {
	set, index, ok := parse(m.Text)
	s.mu.Lock()
	defer s.mu.Unlock()
	return ok && set == s.set && index != blankIndex && index < s.total
}

// take takes up to n tokens for the visibility. Messages that are none are removed: blanks of the set-up that
// arrived late, and tokens of an earlier set.
func (s *source) take(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	ctx = request.WithCause(ctx, request.CauseLimit)
	batch, err := s.queue.Dequeue(ctx, min(n, queue.MaxBatch), visibility)
	if err != nil {
		return nil, err
	}
	void := func(m queue.Message) bool { return !s.valid(&m) }
	if !slices.ContainsFunc(batch, void) {
		return batch, nil
	}
	if _, err := s.refresh(ctx); err != nil { // perhaps it is our set that counts no more
		return nil, err
	}
	return slices.DeleteFunc(batch, func(m queue.Message) bool {
		gone := void(m)
		if gone {
			_ = s.queue.Delete(ctx, m.Lease) // if not, whoever finds it next does it
		}
		return gone
	}), nil
}

// giveBack makes a token visible at once. If that fails it comes back by itself, later.
func (s *source) giveBack(ctx context.Context, m queue.Message) error {
	_, err := s.queue.Update(request.WithCause(ctx, request.CauseLimit), m.Lease, m.Text, 0)
	return err
}

func (s *source) missing(ctx context.Context) error {
	b, err := s.refresh(request.WithCause(ctx, request.CauseLimit))
	if err != nil {
		return err
	}
	if b.depth < int64(s.total) {
		return fmt.Errorf("queue %v has %d of %d tokens: somebody has deleted the others; stop all that use it, drop it and call Init", s.queue.Name(), b.depth, s.total)
	}
	return nil
}

// explain returns the error of a request to the queue of tokens as that of a dequeue of the jobs, which does
// not take place. A queue of tokens that is missing must not pass for a queue of jobs that is.
func (s *source) explain(err error, jobs queue.Name) error {
	e := &queue.Error{Op: "dequeue", Queue: jobs, Detail: fmt.Sprintf("the limit «%s»: %v", s.limit, err)}
	for _, kind := range []error{queue.ErrThrottled, queue.ErrUnavailable, queue.ErrOutcomeUnknown, queue.ErrUnauthorized} {
		if errors.Is(err, kind) {
			e.Kind = kind
		}
	}
	if errors.Is(err, queue.ErrQueueMissing) {
		e.Hint = "its queue of tokens was deleted: call Init"
	}
	return e
}

// mark begins the text of every token.
const mark = "millrace-token/1"

// blankIndex is the index of a token that is not worth anything yet.
const blankIndex = -1

func textOf(set string, index int) string {
	if index == blankIndex {
		return fmt.Sprintf("%s set=%s blank", mark, set)
	}
	return fmt.Sprintf("%s set=%s index=%d", mark, set, index)
}

func parse(text string) (set string, index int, ok bool) {
	parts := strings.Split(text, " ")
	if len(parts) != 3 || parts[0] != mark {
		return "", 0, false
	}
	set, found := strings.CutPrefix(parts[1], "set=")
	if !found || set == "" {
		return "", 0, false
	}
	if parts[2] == "blank" {
		return set, blankIndex, true
	}
	number, found := strings.CutPrefix(parts[2], "index=")
	index, err := strconv.Atoi(number)
	if !found || err != nil || index < 0 || strconv.Itoa(index) != number {
		return "", 0, false
	}
	return set, index, true
}
