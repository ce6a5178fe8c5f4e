package millracetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/kinds"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
	"github.com/millrace/millrace/queue/localqueue"
)

// Queue returns an empty queue in memory, in an account of its own. To producers and listeners
// it behaves like one in Azure, with receipts, visibility and limits. In addition it lets
// [Enqueued] see hidden messages. Its name is "jobs"; further queues of the same test are
// "jobs-2", "jobs-3" and so on, so that messages and errors tell them apart. In a synctest
// bubble it must be made inside the bubble. It is safe for concurrent use and needs no closing.
func Queue(t testing.TB) queue.Manager {
	t.Helper()
	q := newRecordingQueue(t, made.name(t))
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatalf("millracetest: make a queue: %v", err)
	}
	return q
}

// WithClaims returns the queue with the claims of its producers and workers: [Send] stores the bodies that are too large for a
// message, and [Enqueued], [RequireEnqueued] and their relatives open those that are stored. It changes nothing else:
// producers and listeners of the queue need the claims in their options.
func WithClaims(q queue.Manager, c listener.Claims) queue.Manager { return &claimedQueue{q, c} }

type claimedQueue struct {
	queue.Manager
	claims listener.Claims
}

// recording returns the queue as [Queue] has made it, if it has.
func recording(q queue.Queue) (*recordingQueue, bool) {
	if c, ok := q.(*claimedQueue); ok {
		q = c.Manager
	}
	r, ok := q.(*recordingQueue)
	return r, ok
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

func newRecordingQueue(t testing.TB, name string) *recordingQueue {
	t.Helper()
	engine, err := localqueue.New(nil)
	if err != nil {
		t.Fatalf("millracetest: %v", err)
	}
	return &recordingQueue{
		Manager:  engine.Queue(queue.Name{Account: "millracetest", Queue: name}),
		journals: &journals{byName: map[string]*journal{}},
	}
}

// recordingQueue is a queue with a journal of its messages. A peek would return no more than 32
// messages and no hidden ones, and a dequeue would count as a delivery.
type recordingQueue struct {
	queue.Manager
	journals *journals // of all queues of the account
}

func (q *recordingQueue) journal() *journal { return q.journals.of(q.Name().Queue) }

func (q *recordingQueue) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (m queue.Message, err error) {
	q.journal().change(func(j *journal) {
		if m, err = q.Manager.Enqueue(ctx, text, o); err == nil {
			j.add(m.ID, text, driver.TTL(o))
		}
	})
	return m, err
}

func (q *recordingQueue) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (fresh queue.Lease, err error) {
	q.journal().change(func(j *journal) {
		if fresh, err = q.Manager.Update(ctx, l, text, visibility); err == nil {
			j.entries[l.ID].text = text
		}
	})
	return fresh, err
}

func (q *recordingQueue) Delete(ctx context.Context, l queue.Lease) (err error) {
	q.journal().change(func(j *journal) {
		if err = q.Manager.Delete(ctx, l); err == nil {
			delete(j.entries, l.ID)
		}
	})
	return err
}

func (q *recordingQueue) Clear(ctx context.Context) (err error) {
	q.journal().change(func(j *journal) {
		if err = q.Manager.Clear(ctx); err == nil {
			clear(j.entries)
		}
	})
	return err
}

func (q *recordingQueue) Drop(ctx context.Context) (err error) {
	q.journal().change(func(j *journal) {
		if err = q.Manager.Drop(ctx); err == nil {
			clear(j.entries)
		}
	})
	return err
}

// EmptyAfter returns what short batches show: see [driver.EmptyAfter].
func (q *recordingQueue) EmptyAfter() int { return driver.EmptyAfter(q.Manager) }

// Sibling returns a recording queue too, such as the poison queue.
func (q *recordingQueue) Sibling(suffix string) queue.Queue {
	return &recordingQueue{Manager: q.Manager.Sibling(suffix).(queue.Manager), journals: q.journals}
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
		e.expires = time.Now().Add(time.Duration(driver.Seconds(life)) * time.Second)
	}
	j.entries[id] = e
}

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
	o := &producer.Options[T]{}
	if c, ok := q.(*claimedQueue); ok {
		o.Claims = c.claims
	}
	p := producer.New(q, o)
	for _, job := range jobs {
		if _, err := p.Send(t.Context(), job, nil); err != nil {
			t.Fatalf("millracetest: %v", err)
		}
	}
}

// Enqueued returns the jobs on a queue without taking any off it. For a [Queue] these are all
// jobs, in the order in which they were sent, including those hidden by a delay or a lease. Any
// other queue is peeked at, which shows visible messages only; the test fails if there are more
// than the 32 that one peek can return. Of a group these are the jobs that are not done. The queue must be that of
// [WithClaims] if bodies are stored.
//
// Jobs are decoded with codec.JSON, or with the given codec. One that cannot be decoded fails
// the test, as it would be poison for a listener, and so does one of a kind, which may have another
// type: see [EnqueuedKind]. To read a poison queue:
//
//	records := millracetest.Enqueued[poison.Record](t, q.Sibling(poison.Suffix))
//
// A queue that does not exist holds nothing.
func Enqueued[T any](t testing.TB, q queue.Queue, c ...codec.Codec[T]) []T {
	t.Helper()
	read := codec.JSON[T]()
	if len(c) > 0 {
		read = c[0]
	}
	var jobs []T
	for _, e := range openAll(t, q) {
		if e.head.Kind != "" {
			t.Fatalf("millracetest: %v holds a job of the kind %q: EnqueuedKind returns the jobs of one kind", q.Name(), e.head.Kind)
		}
		jobs = append(jobs, decoded(t, q, read, e))
	}
	return jobs
}

// EnqueuedKind is [Enqueued] for a queue with jobs of several kinds. It returns those of one kind;
// those of others may be there too.
func EnqueuedKind[T any](t testing.TB, q queue.Queue, k kinds.Kind[T]) []T {
	t.Helper()
	read := k.Codec
	if read == nil {
		read = codec.JSON[T]()
	}
	var jobs []T
	for _, e := range openAll(t, q) {
		if e.head.Kind == k.Name {
			jobs = append(jobs, decoded(t, q, read, e))
		}
	}
	return jobs
}

// RequireEnqueued ends the test unless the queue holds exactly these jobs, in any order, as
// [Enqueued] returns them. Jobs are equal if their JSON is.
func RequireEnqueued[T any](t testing.TB, q queue.Queue, want ...T) {
	t.Helper()
	requireJobs(t, q, "", Enqueued[T](t, q), want)
}

// RequireEnqueuedKind ends the test unless the jobs of the kind that the queue holds are exactly
// these, in any order, as [EnqueuedKind] returns them. Jobs are equal if their JSON is.
func RequireEnqueuedKind[T any](t testing.TB, q queue.Queue, k kinds.Kind[T], want ...T) {
	t.Helper()
	requireJobs(t, q, fmt.Sprintf(" of the kind %q", k.Name), EnqueuedKind(t, q, k), want)
}

// requireJobs ends the test unless the jobs are those wanted.
func requireJobs[T any](t testing.TB, q queue.Queue, which string, jobs, want []T) {
	t.Helper()
	var held []string         // as JSON
	spare := map[string]int{} // how often each is held beyond those wanted
	for _, job := range jobs {
		body := encoded(t, job)
		held = append(held, body)
		spare[body]++
	}
	var report strings.Builder
	for _, job := range want {
		body := encoded(t, job)
		if spare[body] == 0 {
			fmt.Fprintf(&report, "\n  missing:  %s", shorten(body))
			continue
		}
		spare[body]--
	}
	for _, body := range held {
		if spare[body] > 0 {
			spare[body]--
			fmt.Fprintf(&report, "\n  too many: %s", shorten(body))
		}
	}
	if report.Len() > 0 {
		t.Fatalf("millracetest: %v does not hold the %s%s expected:%s", q.Name(), count(len(want), "job"), which, report.String())
	}
}

// opened is an opened message, or an item of one.
type opened struct {
	text   string
	head   envelope.Head
	body   []byte
	format codec.Format
}

// openAll opens the messages on the queue. Of a group it returns each item that is not done.
func openAll(t testing.TB, q queue.Queue) (all []opened) {
	t.Helper()
	for _, text := range texts(t, q) {
		head, body, format, err := envelope.Open(text, codec.Auto, envelope.Kinds, envelope.Groups, envelope.Claims)
		if err == nil && head.Claim != "" {
			c, ok := q.(*claimedQueue)
			if !ok {
				t.Fatalf("millracetest: %v holds a message whose body is stored as %s: use WithClaims", q.Name(), head.Claim)
			}
			body, err = c.claims.Open(t.Context(), head.Claim)
		}
		items := envelope.Group{body}
		if err == nil && head.Items > 0 {
			items, err = envelope.DecodeGroup(body, head.Items)
		}
		if err != nil {
			t.Fatalf("millracetest: %v holds a message that no listener can read: %v", q.Name(), err)
		}
		for i, item := range items {
			if !head.Done.Has(i) {
				all = append(all, opened{text, head, item, format})
			}
		}
	}
	return all
}

func decoded[T any](t testing.TB, q queue.Queue, c codec.Codec[T], e opened) T {
	t.Helper()
	body, _ := envelope.Verbatim(c, e.text, e.body, e.format)
	job, err := c.Decode(body)
	if err != nil {
		t.Fatalf("millracetest: %v holds a message that is not a job of this type: %v: %s", q.Name(), err, shorten(e.text))
	}
	return job
}

// RequireEmpty ends the test if the queue holds any message, hidden ones included.
func RequireEmpty(t testing.TB, q queue.Queue) {
	t.Helper()
	held := texts(t, q)
	depth := len(held)
	if _, ok := recording(q); !ok {
		depth = max(depth, depthOf(t, q))
	}
	if depth == 0 {
		return
	}
	var report strings.Builder
	for _, text := range held {
		fmt.Fprintf(&report, "\n  %s", shorten(text))
	}
	if hidden := depth - len(held); hidden > 0 {
		fmt.Fprintf(&report, "\n  and %d hidden", hidden)
	}
	t.Fatalf("millracetest: %v holds %s, want none:%s", q.Name(), count(depth, "message"), report.String())
}

func texts(t testing.TB, q queue.Queue) []string {
	t.Helper()
	if k, ok := recording(q); ok {
		return k.journal().texts()
	}
	batch, err := q.Peek(t.Context(), queue.MaxBatch)
	if err != nil && !errors.Is(err, queue.ErrQueueMissing) {
		t.Fatalf("millracetest: %v", err)
	}
	if len(batch) == queue.MaxBatch {
		if depth := depthOf(t, q); depth > len(batch) {
			t.Fatalf("millracetest: %v holds %d messages, of which a peek shows %d: use millracetest.Queue, which shows all",
				q.Name(), depth, len(batch))
		}
	}
	all := make([]string, len(batch))
	for i, m := range batch {
		all[i] = m.Text
	}
	return all
}

// depthOf returns the depth of a queue that was not made by [Queue].
func depthOf(t testing.TB, q queue.Queue) int {
	t.Helper()
	p, err := q.Properties(t.Context())
	if err != nil && !errors.Is(err, queue.ErrQueueMissing) {
		t.Fatalf("millracetest: %v", err)
	}
	return int(min(p.Depth, 1<<30))
}

func encoded[T any](t testing.TB, job T) string {
	t.Helper()
	body, err := codec.JSON[T]().Encode(job)
	if err != nil {
		t.Fatalf("millracetest: %v", err)
	}
	return string(body)
}

// maxTextShown is how many bytes of a text a failure shows.
const maxTextShown = 200

func shorten(text string) string {
	if len(text) <= maxTextShown {
		return text
	}
	return fmt.Sprintf("%s … (%d bytes)", strings.ToValidUTF8(text[:maxTextShown], ""), len(text))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
