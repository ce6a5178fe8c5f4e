package producer_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/sharded"
)

// lossy loses the responses to its first enqueues.
type lossy struct {
	queue.Queue
	losses int
	after  func() // called after each loss; nil means nothing
	deaf   bool   // its depth cannot be read: the reading hangs
}

func (l *lossy) Properties(ctx context.Context) (queue.Properties, error) {
	if l.deaf {
		<-ctx.Done()
		return queue.Properties{}, ctx.Err()
	}
	return l.Queue.Properties(ctx)
}

func (l *lossy) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	m, err := l.Queue.Enqueue(ctx, text, o)
	if err != nil || l.losses == 0 {
		return m, err
	}
	l.losses--
	if l.after != nil {
		l.after()
	}
	return queue.Message{}, &queue.Error{Op: "enqueue", Queue: l.Name(), Kind: queue.ErrOutcomeUnknown}
}

// several returns a sender over three queues, and these.
func several(t *testing.T) (*sharded.Queue, []*lossy) {
	t.Helper()
	first := setup(t)
	shards := []*lossy{{Queue: first}, {Queue: first.Sibling("-b")}, {Queue: first.Sibling("-c")}}
	all := make([]queue.Queue, len(shards))
	for i, s := range shards {
		if err := s.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		all[i] = s
	}
	q, err := sharded.New(all, &sharded.Options{Seed: 1, Name: queue.Name{Account: "acme", Queue: "all"}})
	if err != nil {
		t.Fatal(err)
	}
	return q, shards
}

// An event for another queue would wake workers that find nothing, and leave those of the message asleep.
func TestTheEventNamesTheQueueOfTheMessage(t *testing.T) { // L-35
	q, _ := several(t)
	h, seen := &heard{}, map[queue.Name]bool{}
	p := telling(q, h, nil)
	for i := range 9 {
		o := &producer.SendOptions{}
		if i > 5 {
			o.Delay = time.Hour
		}
		sent, err := p.Send(t.Context(), order{"7"}, o)
		if err != nil {
			t.Fatal(err)
		}
		if got := h.take(); len(got) != 1 || got[0].Queue != sent.Queue || got[0].Due.IsZero() != (i <= 5) {
			t.Errorf("told of %+v, want one event for %v", got, sent.Queue)
		}
		seen[sent.Queue] = true
	}
	if len(seen) != 3 {
		t.Errorf("the messages are in %v", seen)
	}
}

// A Send that gives up may have left a message in each queue that it tried, such as the one that its error names.
func TestAnUnknownOutcomeIsToldToTheQueueOfTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, shards := several(t)
		for _, s := range shards {
			s.losses = 1000
		}
		h := &heard{}
		p := telling(q, h, func(o *producer.Options[order]) { o.Timeout = 2 * time.Second })
		_, err := p.Send(t.Context(), order{"7"}, nil)
		e := (*queue.Error)(nil)
		if !errors.Is(err, queue.ErrOutcomeUnknown) || !errors.As(err, &e) {
			t.Fatalf("got %v", err)
		}
		synctest.Wait()
		told := map[queue.Name]int{}
		for _, event := range h.take() {
			told[event.Queue]++
		}
		if told[e.Queue] != 1 || told[q.Name()] != 0 {
			t.Errorf("told of %v, want one event for each queue, such as %v", told, e.Queue)
		}
	})
}

// A message that may be in two queues needs the workers of both.
func TestAMessageThatMayBeInTwoQueuesIsToldToBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, shards := several(t)
		var first queue.Name
		for _, s := range shards {
			s.losses = 1
			s.after = func() { // the shard goes, so that the message is repeated elsewhere
				first = s.Name()
				for _, other := range shards {
					other.losses = 0
				}
				go func() { _ = q.Remove(context.Background(), first) }()
			}
		}
		h := &heard{}
		sent, err := telling(q, h, nil).Send(t.Context(), order{"7"}, nil)
		if err != nil || !sent.MaybeTwice || sent.Queue == first {
			t.Fatalf("got %+v, %v", sent, err)
		}
		got := h.take()
		told := map[queue.Name]bool{}
		for _, e := range got {
			told[e.Queue] = true
		}
		if len(got) != 2 || !told[first] || !told[sent.Queue] {
			t.Errorf("told of %+v, want an event for %v and one for %v", got, first, sent.Queue)
		}
	})
}

// The events of a SendAll are collected by queue.
func TestSendAllTellsEachQueueOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := several(t)
		h := &heard{}
		results, err := telling(q, h, nil).SendAll(t.Context(), make([]order, 30), nil)
		if err != nil || len(results) != 30 {
			t.Fatal(err)
		}
		want := map[queue.Name]int64{}
		for _, shard := range q.Shards() {
			for _, r := range results {
				if r.Sent.Queue == shard.Name() {
					want[r.Sent.Queue] += h.size(t, shard)
				}
			}
		}
		events := h.take()
		bytes := map[queue.Name]int64{}
		for _, e := range events {
			bytes[e.Queue] += e.Bytes
		}
		if len(events) != len(want) || !maps.Equal(bytes, want) {
			t.Errorf("told of %+v, want one event for each of %v", events, want)
		}
	})
}

// A queue on which telling fails does not keep the others from being told, and the error names it.
func TestAQueueThatCannotBeToldStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, shards := several(t)
		h := &heard{}
		deny := &denying{heard: h, queue: shards[0].Name()}
		p := telling(q, h, func(o *producer.Options[order]) { o.Wakeups = deny })
		if _, err := p.SendAll(t.Context(), make([]order, 30), nil); err != nil {
			t.Fatal(err)
		}
		if got, errs := h.take(), h.takeErrors(); len(got) != 2 || len(errs) != 1 || !strings.Contains(errs[0].Error(), shards[0].Name().String()) {
			t.Errorf("told of %+v and reported %v, want two events and the error of the third", got, errs)
		}
		one := telling(shards[0], h, func(o *producer.Options[order]) { o.Wakeups = deny })
		send(t, one, 1)
		if errs := h.takeErrors(); len(errs) != 1 || strings.Count(errs[0].Error(), "acme/orders") != 1 {
			t.Errorf("one queue reported %v, want its name once", errs)
		}
	})
}

// Nor does a queue that hangs, by its publisher or by its depth, take the time of the others.
func TestAQueueThatHangsKeepsNoOtherFromBeingTold(t *testing.T) {
	for i := range 20 { // the order is another one each time
		depth := i % 2
		synctest.Test(t, func(t *testing.T) {
			q, shards := several(t)
			h := &heard{}
			stuck := &stuck{heard: h, queues: map[queue.Name]bool{}}
			for _, s := range shards[:2] {
				s.deaf = depth > 0
				stuck.queues[s.Name()] = depth == 0
			}
			p := telling(q, h, func(o *producer.Options[order]) { o.Wakeups, o.WakeupDepth = stuck, depth })
			if _, err := p.SendAll(t.Context(), make([]order, 30), nil); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if !slices.ContainsFunc(h.take(), func(e event) bool { return e.Queue == shards[2].Name() }) {
				t.Errorf("depth %d: nobody was told of %v", depth, shards[2].Name())
			}
		})
	}
}

// stuck hangs with the events of some queues until their context ends, and remembers those of the others.
type stuck struct {
	*heard
	queues map[queue.Name]bool
}

func (s *stuck) Publish(ctx context.Context, q queue.Name, bytes int64, due time.Time) error {
	if s.queues[q] {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.heard.Publish(ctx, q, bytes, due)
}

// A panic of the publisher for one queue stops no other.
func TestAPublisherThatPanicsForAQueueStopsNoOther(t *testing.T) {
	q, shards := several(t)
	h := &heard{}
	broken := &breaking{heard: h, queue: shards[1].Name()}
	p := telling(q, h, func(o *producer.Options[order]) { o.Wakeups = broken })
	if _, err := p.SendAll(t.Context(), make([]order, 30), nil); err != nil {
		t.Fatal(err)
	}
	if got, errs := h.take(), h.takeErrors(); len(got) != 2 || len(errs) != 1 || !strings.Contains(errs[0].Error(), "panicked") {
		t.Errorf("told of %+v and reported %v, want two events and one error", got, errs)
	}
}

// breaking panics for one queue, and remembers the events of the others.
type breaking struct {
	*heard
	queue queue.Name
}

func (b *breaking) Publish(ctx context.Context, q queue.Name, bytes int64, due time.Time) error {
	if q == b.queue {
		panic("no")
	}
	return b.heard.Publish(ctx, q, bytes, due)
}

// A level holds for each queue by itself.
func TestEachQueueHasItsLevel(t *testing.T) { // L-37
	q, shards := several(t)
	h := &heard{}
	p := telling(q, h, depthOf(10))
	// The first is full already.
	for range 20 {
		if _, err := shards[0].Queue.Enqueue(t.Context(), "text", nil); err != nil {
			t.Fatal(err)
		}
	}
	send(t, p, 9)
	got := h.take()
	for _, e := range got {
		if e.Queue != shards[0].Name() {
			t.Errorf("told of %+v, whose level is not reached", e)
		}
	}
	if len(got) != 1 {
		t.Errorf("told of %+v, want one event for the queue above its level", got)
	}
	send(t, p, 30)
	seen := map[queue.Name]int{}
	for _, e := range h.take() {
		seen[e.Queue]++
	}
	if len(seen) != 3 {
		t.Errorf("at the level of all told of %v", seen)
	}
}

func TestAMessageInOneOfSeveralQueuesIsCancelled(t *testing.T) {
	q, shards := several(t)
	p := producer.New[order](q, nil)
	var last producer.Sent
	for range 6 {
		sent, err := p.Send(t.Context(), order{"7"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Cancel(t.Context(), sent); err != nil {
			t.Error(err)
		}
		if err := p.Cancel(t.Context(), sent); !errors.Is(err, queue.ErrLeaseLost) || !strings.Contains(err.Error(), sent.Queue.String()) {
			t.Errorf("cancelled twice: got %v", err)
		}
		last = sent
	}
	if depth, err := q.Properties(t.Context()); err != nil || depth.Depth != 0 {
		t.Errorf("%+v are left, %v", depth, err)
	}
	if err := q.Remove(t.Context(), last.Queue); err != nil {
		t.Fatal(err)
	}
	if err := p.Cancel(t.Context(), last); err == nil || errors.Is(err, queue.ErrLeaseLost) || !strings.Contains(err.Error(), "no queue of that name") {
		t.Errorf("in a queue that was removed: got %v", err)
	}
	last.Queue = queue.Name{}
	if err := p.Cancel(t.Context(), last); err == nil || !strings.Contains(err.Error(), "keep Sent.Queue") {
		t.Errorf("in an unknown queue: got %v", err)
	}
	// One queue has but its own messages. Its requests would find others gone, which is no truth.
	one := producer.New[order](shards[0].Queue, nil)
	sent, err := one.Send(t.Context(), order{"7"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	sent.Queue.Queue = "another"
	if err := one.Cancel(t.Context(), sent); err == nil || !strings.Contains(err.Error(), "no queue of that name") {
		t.Errorf("in another queue: got %v", err)
	}
	sent.Queue = queue.Name{}
	if err := one.Cancel(t.Context(), sent); err != nil {
		t.Errorf("a Sent of one queue needs no name: %v", err)
	}
}

// Create creates all queues, when one of them is found missing.
func TestAMissingShardIsCreated(t *testing.T) {
	first := setup(t)
	q, err := sharded.New([]queue.Queue{first, first.Sibling("-b"), first.Sibling("-c")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := producer.New(q, &producer.Options[order]{Create: true})
	send(t, p, 9)
	if depth, err := q.Properties(t.Context()); err != nil || depth.Depth != 9 {
		t.Errorf("got %+v, %v; want nine messages", depth, err)
	}
}

// A shard that could not be created is tried again, also if another one exists with metadata of its own.
func TestAShardThatCouldNotBeCreatedIsTriedAgain(t *testing.T) {
	for _, kind := range []error{queue.ErrThrottled, queue.ErrUnauthorized} {
		synctest.Test(t, func(t *testing.T) {
			first := setup(t)
			there, missing := first.Sibling("-b"), &reluctant{Queue: first.Sibling("-c"), err: kind}
			if err := there.Create(t.Context(), map[string]string{"team": "a"}); err != nil {
				t.Fatal(err)
			}
			q, err := sharded.New([]queue.Queue{there, missing}, &sharded.Options{Place: sharded.ByKey})
			if err != nil {
				t.Fatal(err)
			}
			key := "1"
			for q.ShardsOf(key)[0].Name() != missing.Name() {
				key += "1"
			}
			p := producer.New(q, &producer.Options[order]{Create: true})
			sent, err := p.Send(t.Context(), order{"7"}, &producer.SendOptions{Key: key})
			if errors.Is(kind, queue.ErrUnauthorized) {
				if !errors.Is(err, kind) {
					t.Errorf("got %v, want the reason why the shard is missing", err)
				}
				return
			}
			if err != nil || sent.Queue != missing.Name() {
				t.Errorf("got %+v, %v; want it in the shard that was missing", sent, err)
			}
		})
	}
}

// reluctant fails to be created the first time.
type reluctant struct {
	queue.Queue
	err error // nil after that
}

func (r *reluctant) Create(ctx context.Context, metadata map[string]string) error {
	if err := r.err; err != nil {
		r.err = nil
		return &queue.Error{Op: "create", Queue: r.Name(), Kind: err}
	}
	return r.Queue.Create(ctx, metadata)
}

// denying refuses events of one queue, and remembers the others.
type denying struct {
	*heard
	queue queue.Name
}

func (d *denying) Publish(ctx context.Context, q queue.Name, bytes int64, due time.Time) error {
	if q == d.queue {
		return errors.New("denied")
	}
	return d.heard.Publish(ctx, q, bytes, due)
}
