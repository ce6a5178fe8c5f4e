package millracetest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// Queue returns an empty queue in memory, in an account of its own. To producers and listeners
// it behaves like one in Azure, with receipts, visibility and limits. In addition it lets
// [Enqueued] see hidden messages. Its name is "jobs"; further queues of the same test are
// "jobs-2", "jobs-3" and so on, so that messages and errors tell them apart. In a synctest
// bubble it must be made inside the bubble. It is safe for concurrent use and needs no closing.
func Queue(t testing.TB) queue.Manager {
	t.Helper()
	q := newRecordingQueue(made.name(t))
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatalf("millracetest: make a queue: %v", err)
	}
	return q
}

// made counts the queues of each running test.
var made = counter{of: map[testing.TB]int{}}

type counter struct {
	mu sync.Mutex
	of map[testing.TB]int // guarded by mu
}

// name returns the name for the next queue of a test.
func (c *counter) name(t testing.TB) string {
	c.mu.Lock()
	c.of[t]++
	n := c.of[t]
	c.mu.Unlock()
	if n > 1 {
		return fmt.Sprintf("jobs-%d", n)
	}
	t.Cleanup(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.of, t)
	})
	return "jobs"
}

func newRecordingQueue(name string) *recordingQueue {
	return &recordingQueue{
		Queue:    localqueue.New(nil).Queue(queue.Name{Account: "millracetest", Queue: name}),
		journals: &journals{byName: map[string]*journal{}},
	}
}

// recordingQueue is a queue with a journal of its messages. A peek would return no more than 32
// messages and no hidden ones, and a dequeue would count as a delivery.
type recordingQueue struct {
	*localqueue.Queue
	journals *journals // of all queues of the account
}

func (q *recordingQueue) journal() *journal { return q.journals.of(q.Name().Queue) }

func (q *recordingQueue) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (m queue.Message, err error) {
	q.journal().change(func(j *journal) {
		if m, err = q.Queue.Enqueue(ctx, text, o); err == nil {
			j.add(m.ID, text, o.Life())
		}
	})
	return m, err
}

func (q *recordingQueue) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (fresh queue.Lease, err error) {
	q.journal().change(func(j *journal) {
		if fresh, err = q.Queue.Update(ctx, l, text, visibility); err == nil {
			j.rewrite(l.ID, text)
		}
	})
	return fresh, err
}

func (q *recordingQueue) Delete(ctx context.Context, l queue.Lease) (err error) {
	q.journal().change(func(j *journal) {
		if err = q.Queue.Delete(ctx, l); err == nil {
			j.remove(l.ID)
		}
	})
	return err
}

func (q *recordingQueue) Clear(ctx context.Context) (err error) {
	q.journal().change(func(j *journal) {
		if err = q.Queue.Clear(ctx); err == nil {
			j.clear()
		}
	})
	return err
}

func (q *recordingQueue) Drop(ctx context.Context) (err error) {
	q.journal().change(func(j *journal) {
		if err = q.Queue.Drop(ctx); err == nil {
			j.clear()
		}
	})
	return err
}

// Sibling returns a recording queue too, such as the poison queue.
func (q *recordingQueue) Sibling(suffix string) queue.Queue {
	return &recordingQueue{Queue: q.Queue.Sibling(suffix).(*localqueue.Queue), journals: q.journals}
}

// journals holds the journals of the queues of one account.
type journals struct {
	mu     sync.Mutex
	byName map[string]*journal // guarded by mu
}

func (all *journals) of(name string) *journal {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.byName[name] == nil {
		all.byName[name] = &journal{entries: map[queue.ID]*entry{}}
	}
	return all.byName[name]
}

// journal records what one queue holds, hidden or not.
type journal struct {
	mu      sync.Mutex
	entries map[queue.ID]*entry // guarded by mu
	added   int                 // messages ever added
}

type entry struct {
	place   int // position in the order of arrival
	text    string
	expires time.Time // zero for never
}

// change records a change of the queue made by do. It holds the lock over the change, so that
// the journal and the queue agree; the change does not block.
func (j *journal) change(do func(*journal)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	do(j)
}

// add records a message. It requires mu, as the other methods below do.
func (j *journal) add(id queue.ID, text string, life time.Duration) {
	j.added++
	e := &entry{place: j.added, text: text}
	if life != queue.Forever {
		e.expires = time.Now().Add(time.Duration(queue.Seconds(life)) * time.Second)
	}
	j.entries[id] = e
}

func (j *journal) rewrite(id queue.ID, text string) { j.entries[id].text = text }
func (j *journal) remove(id queue.ID)               { delete(j.entries, id) }
func (j *journal) clear()                           { clear(j.entries) }

// texts returns the texts of the messages that have not expired, in the order of arrival.
func (j *journal) texts() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	var texts []string
	for _, e := range slices.SortedFunc(maps.Values(j.entries), func(a, b *entry) int { return cmp.Compare(a.place, b.place) }) {
		if e.expires.IsZero() || now.Before(e.expires) {
			texts = append(texts, e.text)
		}
	}
	return texts
}

// Send sends jobs to a queue with a default producer.Producer, or ends the test. Use a producer
// for another codec, a delay or a TTL.
func Send[T any](t testing.TB, q queue.Queue, jobs ...T) {
	t.Helper()
	p := producer.New[T](q, nil)
	for _, job := range jobs {
		if _, err := p.Send(t.Context(), job, nil); err != nil {
			t.Fatalf("millracetest: %v", err)
		}
	}
}
