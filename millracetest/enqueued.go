package millracetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/kinds"
	"github.com/millrace/millrace/queue"
)

// Enqueued returns the jobs on a queue without taking any off it. For a [Queue] these are all
// jobs, in the order in which they were sent, including those hidden by a delay or a lease. Any
// other queue is peeked at, which shows visible messages only; the test fails if there are more
// than the 32 that one peek can return. Of a group these are the jobs that are not done.
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
	for _, e := range envelopes(t, q) {
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
	for _, e := range envelopes(t, q) {
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

// envelope is an opened message, or an item of one.
type envelope struct {
	text string
	head codec.Head
	body []byte
}

// envelopes opens the messages on the queue. Of a group it returns each item that is not done.
func envelopes(t testing.TB, q queue.Queue) (all []envelope) {
	t.Helper()
	for _, text := range texts(t, q) {
		head, body, _, err := codec.Open(text, codec.Auto, codec.Kinds, codec.Groups)
		items := codec.Group{body}
		if err == nil && head.Items > 0 {
			items, err = codec.DecodeGroup(body, head.Items)
		}
		if err != nil {
			t.Fatalf("millracetest: %v holds a message that no listener can read: %v", q.Name(), err)
		}
		for i, item := range items {
			if !head.Done.Has(i) {
				all = append(all, envelope{text, head, item})
			}
		}
	}
	return all
}

func decoded[T any](t testing.TB, q queue.Queue, c codec.Codec[T], e envelope) T {
	t.Helper()
	job, err := c.Decode(e.body)
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
	if _, ok := q.(*recordingQueue); !ok {
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
	if k, ok := q.(*recordingQueue); ok {
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
