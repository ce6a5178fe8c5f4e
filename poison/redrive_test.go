package poison_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/localqueue"
)

// morgue is a poison queue, and the queue that its records came from.
type morgue struct {
	account queue.Account
	orders  queue.Queue
	poison  queue.Queue
}

func newMorgue(t rapid.TB) *morgue {
	t.Helper()
	a := must(localqueue.New(nil)).Account("acme")
	m := &morgue{account: a}
	for name, q := range map[string]*queue.Queue{"orders": &m.orders, "orders-poison": &m.poison} {
		opened, err := a.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := opened.Create(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		*q = opened
	}
	return m
}

// sealed returns the text of a message for job n that has failed.
func sealed(t rapid.TB, n int, h envelope.Head) string {
	t.Helper()
	h.ID = "job-" + strconv.Itoa(n)
	text, err := envelope.Seal(h, []byte(fmt.Sprintf(`{"N":%d}`, n)), codec.Envelope)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// bury puts the record of a message with the text into the poison queue.
func (m *morgue) bury(t rapid.TB, text string, reason poison.Reason, cause error) {
	t.Helper()
	p := policy(t, poisonrecord.Policy{}, m.orders)
	if err := p.Copy(context.Background(), poisonrecord.New(from, message(text), 5, reason, cause)); err != nil {
		t.Fatal(err)
	}
}

// drain takes everything that is visible in the queue, and returns the texts.
func drain(t rapid.TB, q queue.Queue) (texts []string) {
	t.Helper()
	for {
		batch, err := q.Dequeue(context.Background(), queue.MaxBatch, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if len(batch) == 0 {
			return texts
		}
		for _, m := range batch {
			texts = append(texts, m.Text)
			if err := q.Delete(context.Background(), m.Lease); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// jobs counts the job ids of texts.
func jobs(t rapid.TB, texts []string) map[string]int {
	t.Helper()
	ids := make(map[string]int)
	for _, text := range texts {
		if r, err := poison.ParseRecord(text); err == nil {
			text = r.Text
		}
		h, _, _, err := envelope.Open(text, codec.Envelope)
		if err != nil {
			t.Fatal(err)
		}
		ids[h.ID]++
	}
	return ids
}

func depth(t rapid.TB, q queue.Queue) int64 {
	t.Helper()
	p, err := q.Properties(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return p.Depth
}

func TestARedrivenJobStartsAnew(t *testing.T) {
	m := newMorgue(t)
	sent := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	head := envelope.Head{
		ContentType: "application/json", Enqueued: sent, Trace: "00-1-2-01", TraceState: "a=b", Dedupe: "once",
		Attempts: 5, Settled: 7, Starts: 2, Poison: "attempts",
	}
	failed := strings.Replace(sealed(t, 1, head), "\n", "&zz=later\n", 1)
	m.bury(t, failed, poison.ReasonAttempts, errors.New("no stock"))
	report, err := poison.Redrive(t.Context(), m.orders, nil)
	if err != nil || report.Done != 1 || report.Doubled != 0 || report.ByReason[poison.ReasonAttempts].Done != 1 {
		t.Fatalf("got %+v, %v; want one redriven", report, err)
	}
	got := drain(t, m.orders)
	head.Attempts, head.Settled, head.Starts, head.Poison = 0, 0, 0, ""
	want := strings.Replace(sealed(t, 1, head), "\n", "&zz=later\n", 1)
	if !slices.Equal(got, []string{want}) || depth(t, m.poison) != 0 {
		t.Errorf("got %q and %d records left, want %q and none", got, depth(t, m.poison), want)
	}
}

// The reference to a body that is elsewhere is what the job is: it goes back unchanged.
func TestTheClaimIsKept(t *testing.T) {
	m := newMorgue(t)
	m.bury(t, sealed(t, 7, envelope.Head{Attempts: 5, Claim: "blob-7"}), poison.ReasonBlobGone, nil)
	if _, err := poison.Redrive(t.Context(), m.orders, nil); err != nil {
		t.Fatal(err)
	}
	if got, want := drain(t, m.orders), sealed(t, 7, envelope.Head{Claim: "blob-7"}); !slices.Equal(got, []string{want}) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A body that is elsewhere is found by the reference to it.
func TestAFilterFindsABodyThatIsElsewhere(t *testing.T) {
	e := poisonrecord.NewEntry(message(sealed(t, 7, envelope.Head{Claim: "blob-7"})))
	if f := (poisonrecord.Filter{Match: "blob-7"}); !f.Chooses(&e, time.Now()) {
		t.Error("a filter for the reference does not choose the message")
	}
}

func TestWhatIsLeftOfALifeIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMorgue(t)
		p := policy(t, poisonrecord.Policy{}, m.orders)
		for n, life := range []time.Duration{time.Hour, time.Minute} {
			expiring := message(sealed(t, n, envelope.Head{}))
			expiring.Expires = time.Now().Add(life)
			if err := p.Copy(t.Context(), poisonrecord.New(from, expiring, 5, poison.ReasonExpiring, nil)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Minute)
		report, err := poison.Redrive(t.Context(), m.orders, nil)
		if err != nil || report.Done != 1 || report.Expired != 1 || len(report.Problems) != 1 || depth(t, m.poison) != 1 {
			t.Fatalf("got %+v, %v; want one redriven and one expired, which stays", report, err)
		}
		back := onlyMessage(t, m.orders)
		if left := time.Until(back.Expires); left > 50*time.Minute || left < 49*time.Minute {
			t.Errorf("it lives for %v, want 50m", left)
		}
		report, err = poison.Redrive(t.Context(), m.orders, &poison.Options{TTL: queue.Forever})
		if err != nil || report.Done != 1 || depth(t, m.poison) != 0 {
			t.Errorf("with another TTL: got %+v, %v; want one redriven", report, err)
		}
	})
}

// Messages that are no records go where the caller says, for the rest of their lives, and stay otherwise.
func TestForeignMessagesGoWhereTheCallerSays(t *testing.T) {
	m := newMorgue(t)
	for _, text := range []string{"bare", sealed(t, 1, envelope.Head{Attempts: 5})} {
		if _, err := m.poison.Enqueue(t.Context(), text, &queue.EnqueueOptions{TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	report, err := poison.Redrive(t.Context(), m.orders, nil)
	if err != nil || report.Skipped != 2 || report.ByReason[""].Skipped != 2 || depth(t, m.poison) != 2 {
		t.Fatalf("got %+v, %v; want two skipped", report, err)
	}
	report, err = poison.Redrive(t.Context(), m.orders, &poison.Options{To: m.orders})
	if err != nil || report.Done != 2 {
		t.Fatalf("got %+v, %v; want two redriven", report, err)
	}
	if there, err := m.orders.Peek(t.Context(), 2); err != nil || len(there) != 2 || time.Until(there[0].Expires) > time.Hour || time.Until(there[1].Expires) > time.Hour {
		t.Errorf("got %+v, %v; want two that expire within the hour", there, err)
	}
	if got := slices.Sorted(slices.Values(drain(t, m.orders))); !slices.Equal(got, []string{"bare", sealed(t, 1, envelope.Head{})}) {
		t.Errorf("got %q", got)
	}
}

func TestRecordsThatCannotGoBackStay(t *testing.T) {
	m := newMorgue(t)
	add := func(q queue.Name, text string) {
		t.Helper()
		if err := (poisonrecord.Policy{Queue: m.poison}).Copy(t.Context(), poisonrecord.New(q, message(text), 5, poison.ReasonAttempts, nil)); err != nil {
			t.Fatal(err)
		}
	}
	add(queue.Name{Account: "other", Queue: "orders"}, "x")
	add(queue.Name{Account: "acme", Queue: "orders-poison"}, "x")
	add(queue.Name{Account: "acme", Queue: "NO NAME"}, "x")
	add(queue.Name{Account: "acme", Queue: "orders"}, "millrace/99?id=1\nx")
	for range 3 {
		add(queue.Name{Account: "acme", Queue: "not-there"}, "x")
	}
	add(queue.Name{Account: "acme", Queue: "orders"}, "millrace/1?broken")
	report, err := poison.Redrive(t.Context(), m.orders, &poison.Options{Account: m.account, Parallel: 2})
	if err != nil || report.Skipped != 4 || report.Failed != 3 || report.Done != 1 || report.Doubled != 0 || len(report.Problems) != 5 {
		t.Errorf("got %+v, %v", report, err)
	}
	missing := 0
	for text, messages := range report.Problems {
		if strings.Contains(text, "not-there") {
			missing += messages
		}
	}
	if missing != 3 {
		t.Errorf("got the problems %v, want the queue that is missing 3 times", report.Problems)
	}
	if got := drain(t, m.orders); !slices.Equal(got, []string{"millrace/1?broken"}) || depth(t, m.poison) != 7 {
		t.Errorf("got %q and %d left, want the broken one redriven and 7 left", got, depth(t, m.poison))
	}
}

// A record of a newer release is refused, with and without a queue to send it to: its text may be in
// a field that this release does not know.
func TestARecordOfANewerReleaseStays(t *testing.T) {
	m := newMorgue(t)
	for _, text := range []string{
		`{"millracePoison":2,"reason":"attempts","account":"acme","queue":"orders","body":"x"}`,
		`{"millracePoison":2,"queue":["orders"],"text":7}`,
	} {
		if _, err := m.poison.Enqueue(t.Context(), text, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := poison.ParseRecord(text); !errors.Is(err, codec.ErrNewer) {
			t.Errorf("parsing %s: got error %v, want ErrNewer", text, err)
		}
	}
	for _, o := range []*poison.Options{{Account: m.account}, {To: m.orders}} {
		report, err := poison.Redrive(t.Context(), m.orders, o)
		if err != nil || report.Done != 0 || report.Skipped != 2 {
			t.Errorf("got %d redriven and %d skipped, %v; want 0 and 2", report.Done, report.Skipped, err)
		}
	}
	if got := drain(t, m.orders); len(got) != 0 || depth(t, m.poison) != 2 {
		t.Errorf("got the messages %q and %d left, want none and 2", got, depth(t, m.poison))
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	m := newMorgue(t)
	m.bury(t, "x", poison.ReasonAttempts, nil)
	progress := func(poison.Summary) { t.Error("a refused call has begun") }
	calls := map[string]func(q queue.Queue, o *poison.Options) error{
		"redrive": func(q queue.Queue, o *poison.Options) error {
			_, err := poison.Redrive(t.Context(), q, o)
			return err
		},
		"purge": func(q queue.Queue, o *poison.Options) error {
			_, err := poison.Purge(t.Context(), q, o)
			return err
		},
		"list": func(q queue.Queue, o *poison.Options) (last error) {
			for _, last = range poison.List(t.Context(), q, o) {
			}
			return last
		},
	}
	for _, c := range []struct {
		queue   queue.Queue
		options *poison.Options
		says    string
		of      string // which calls refuse it
	}{
		{m.orders, &poison.Options{Max: -1}, "at most -1", "redrive purge list"},
		{m.orders, &poison.Options{Lease: time.Second}, "at least 2s", "redrive purge list"},
		{m.orders, &poison.Options{Rate: -1}, "must not be negative", "redrive purge list"},
		{m.orders, &poison.Options{Parallel: -1}, "must be at least 1", "redrive purge list"},
		{m.orders, &poison.Options{TTL: time.Millisecond}, "TTL of 1ms", "redrive purge list"},
		{m.orders, &poison.Options{To: m.poison}, "the poison queue itself", "redrive"},
		{m.orders, &poison.Options{Beyond: true}, "does not use Options.Beyond", "redrive purge"},
		{m.orders, &poison.Options{To: m.orders}, "does not use Options.To", "purge list"},
		{m.orders, &poison.Options{Account: m.account}, "does not use Options.Account", "purge list"},
		{m.orders, &poison.Options{TTL: time.Hour}, "does not use Options.TTL", "purge list"},
		{m.orders, &poison.Options{DryRun: true}, "does not use Options.DryRun", "list"},
		{m.orders, &poison.Options{Rate: 1}, "does not use Options.Rate", "list"},
		{m.orders, &poison.Options{Parallel: 1}, "does not use Options.Parallel", "list"},
		{m.orders, &poison.Options{Progress: progress}, "does not use Options.Progress", "list"},
		{nil, nil, "the queue is nil", "redrive purge list"},
		{(*faultqueue.Queue)(nil), nil, "the queue is nil", "redrive purge list"},
		{m.poison, nil, "Pass the queue that its jobs came from, probably orders", "redrive purge list"},
		{m.poison, &poison.Options{To: m.orders}, "probably orders", "redrive"}, // as in earlier releases
		{m.poison, &poison.Options{Account: m.account}, "probably orders", "redrive"},
		{m.orders.Sibling(strings.Repeat("x", 55)), nil, "set Options.From", "redrive purge list"},
	} {
		for name := range strings.FieldsSeq(c.of) {
			if err := calls[name](c.queue, c.options); err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(c.says)) || !strings.HasPrefix(err.Error(), name+" poison messages") {
				t.Errorf("%s with %+v: got error %v, want %q", name, c.options, err, c.says)
			}
		}
	}
	if depth(t, m.orders) != 0 || depth(t, m.poison) != 1 {
		t.Errorf("got %d messages and %d records, want 0 and 1", depth(t, m.orders), depth(t, m.poison))
	}
}

// Without options a redrive sends the records of the queue back to it. Records of other queues
// stay, unless Account opens their queue.
func TestOnlyAnAccountLetsRecordsOfOtherQueuesGo(t *testing.T) {
	m := newMorgue(t)
	other := m.orders.Sibling("-other")
	if err := other.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for _, q := range []queue.Queue{m.orders, other} {
		r := poisonrecord.New(q.Name(), message("of "+q.Name().Queue), 5, poison.ReasonAttempts, nil)
		if err := (poisonrecord.Policy{Queue: m.poison}).Copy(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	report, err := poison.Redrive(t.Context(), m.orders, nil)
	if err != nil || report.Done != 1 || report.Skipped != 1 || len(report.Problems) != 1 {
		t.Errorf("without an account: got %+v, %v; want 1 done and 1 skipped", report, err)
	}
	if report, err = poison.Redrive(t.Context(), m.orders, &poison.Options{Account: m.account}); err != nil || report.Done != 1 {
		t.Errorf("with the account: got %+v, %v; want 1 done", report, err)
	}
	if got, others := drain(t, m.orders), drain(t, other); !slices.Equal(got, []string{"of orders"}) || !slices.Equal(others, []string{"of orders-other"}) {
		t.Errorf("got %q and %q, want each in its own queue", got, others)
	}
}

// A poison queue of any name is redriven, listed, and purged as From. A queue whose own name ends in
// the suffix may have one too.
func TestFromIsThePoisonQueue(t *testing.T) {
	m := newMorgue(t)
	for _, q := range []queue.Queue{m.orders, m.poison} {
		name := q.Name().Queue
		dead := q.Sibling("-dead")
		for _, text := range []string{"1", "2", "3"} {
			r := poisonrecord.New(q.Name(), message(text), 5, poison.ReasonAttempts, nil)
			if err := (poisonrecord.Policy{Queue: dead}).Copy(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		report, err := poison.Redrive(t.Context(), q, &poison.Options{From: dead, Max: 1})
		if err != nil || report.Done != 1 || depth(t, q) != 1 {
			t.Errorf("%s: got %+v, %v; want 1 redriven", name, report, err)
		}
		listed := 0
		for r, err := range poison.List(t.Context(), q, &poison.Options{From: dead, Beyond: true}) {
			if listed++; err != nil || r.Queue != name {
				t.Errorf("%s: listed %+v, %v", name, r, err)
			}
		}
		purged, err := poison.Purge(t.Context(), q, &poison.Options{From: dead})
		if err != nil || listed != 2 || purged.Done != 2 || depth(t, dead) != 0 || depth(t, q) != 1 {
			t.Errorf("%s: listed %d and purged %+v, %v; want 2 and 2", name, listed, purged, err)
		}
	}
}

// The record of a foreign message is the message itself.
func TestAForeignMessageIsListedAsItIs(t *testing.T) {
	m := newMorgue(t)
	sent, err := m.poison.Enqueue(t.Context(), sealed(t, 7, envelope.Head{Kind: "ship"}), &queue.EnqueueOptions{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range poison.List(t.Context(), m.orders, nil) {
		if err != nil || r.Reason != "" || r.Queue != "" || r.Job != "job-7" || r.ID != sent.ID || !r.Poisoned.Equal(sent.Inserted) ||
			r.Expires == nil || !r.Expires.Equal(sent.Expires) || r.Text != sealed(t, 7, envelope.Head{Kind: "ship"}) {
			t.Errorf("got %+v, %v; want message %s", r, err, sent.ID)
		}
	}
}

func TestTheFilterChooses(t *testing.T) {
	now := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	r := poisonrecord.New(from, message(sealed(t, 7, envelope.Head{Kind: "ship"})), 5, poison.ReasonAttempts, errors.New("no stock for order 17"))
	r.Stack = "main.ship()"
	record := poisonrecord.Entry{Message: queue.Message{Lease: queue.Lease{ID: "p-1"}, Inserted: now.Add(-time.Hour)}, Record: r}
	foreign := poisonrecord.NewEntry(queue.Message{Lease: queue.Lease{ID: "p-2"}, Inserted: now.Add(-time.Hour), Text: "eyJOIjoibGFtcCJ9"}) // {"N":"lamp"}
	for _, c := range []struct {
		filter          poisonrecord.Filter
		record, foreign bool
	}{
		{poisonrecord.Filter{}, true, true},
		{poisonrecord.Filter{Reason: poison.ReasonAttempts}, true, false},
		{poisonrecord.Filter{Reason: poison.ReasonLost}, false, false},
		{poisonrecord.Filter{Fingerprint: "no stock for order 99"}, true, false},
		{poisonrecord.Filter{Fingerprint: "no stock for order #"}, true, false},
		{poisonrecord.Filter{Fingerprint: "no stock"}, false, false},
		{poisonrecord.Filter{Match: "order 17"}, true, false},
		{poisonrecord.Filter{Match: "main.ship"}, true, false},
		{poisonrecord.Filter{Match: `"N":7`}, true, false},
		{poisonrecord.Filter{Match: "lamp"}, false, true},
		{poisonrecord.Filter{Job: "job-7"}, true, false},
		{poisonrecord.Filter{Job: "job-8"}, false, false},
		{poisonrecord.Filter{Kind: "ship"}, true, false},
		{poisonrecord.Filter{Kind: "bill"}, false, false},
		{poisonrecord.Filter{ID: "p-1"}, true, false},
		{poisonrecord.Filter{ID: "m-1"}, true, false},
		{poisonrecord.Filter{ID: "p-2"}, false, true},
		{poisonrecord.Filter{Older: time.Hour}, true, true},
		{poisonrecord.Filter{Older: time.Hour + time.Second}, false, false},
		{poisonrecord.Filter{Newer: time.Hour}, true, true},
		{poisonrecord.Filter{Newer: time.Hour - time.Second}, false, false},
		{poisonrecord.Filter{Reason: poison.ReasonAttempts, Match: "nothing"}, false, false},
	} {
		if got := c.filter.Chooses(&record, now); got != c.record {
			t.Errorf("%+v of the record: got %v, want %v", c.filter, got, c.record)
		}
		if got := c.filter.Chooses(&foreign, now); got != c.foreign {
			t.Errorf("%+v of the foreign message: got %v, want %v", c.filter, got, c.foreign)
		}
	}
}

// requests counts the requests to a queue.
type requests struct {
	queue.Queue
	mu    sync.Mutex
	count map[string]int // guarded by mu
}

func (q *requests) add(op string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.count == nil {
		q.count = make(map[string]int)
	}
	q.count[op]++
}

func (q *requests) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	q.add("dequeue")
	return q.Queue.Dequeue(ctx, n, visibility)
}

func (q *requests) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	q.add("update")
	return q.Queue.Update(ctx, l, text, visibility)
}

func (q *requests) Delete(ctx context.Context, l queue.Lease) error {
	q.add("delete")
	return q.Queue.Delete(ctx, l)
}

// A list beyond what a peek shows yields each message once, costs what it says, and leaves the
// messages visible and accounted for.
func TestAListGoesBeyondAPeek(t *testing.T) {
	for _, n := range []int{0, 1, 32, 33, 100} {
		synctest.Test(t, func(t *testing.T) {
			m := newMorgue(t)
			for i := range n {
				if _, err := m.orders.Enqueue(t.Context(), sealed(t, i, envelope.Head{}), nil); err != nil {
					t.Fatal(err)
				}
			}
			counted := &requests{Queue: m.orders}
			var texts []string
			for r, err := range poison.List(t.Context(), m.orders, &poison.Options{From: counted, Beyond: true}) {
				if err != nil {
					t.Fatal(err)
				}
				texts = append(texts, r.Text)
			}
			if ids := jobs(t, texts); len(ids) != n || len(texts) != n {
				t.Errorf("got %d jobs in %d entries, want %d", len(ids), len(texts), n)
			}
			if n < queue.MaxBatch {
				if len(counted.count) != 0 {
					t.Errorf("%d messages, which a peek shows: got %v, want no other requests", n, counted.count)
				}
				return
			}
			// In a bubble what is given back is the first to come again.
			if pages := (n + 31) / 32; counted.count["dequeue"] > 2*pages || counted.count["update"] > 2*n {
				t.Errorf("%d messages: got %v, want about %d pages", n, counted.count, pages)
			}
			time.Sleep(2 * time.Second)
			for _, text := range drain(t, m.orders) {
				if h, _, _, err := envelope.Open(text, codec.Envelope); err != nil || h.Settled < 1 || h.Attempts != 0 || h.Starts != 0 {
					t.Errorf("given back as %q, %v; want one delivery accounted for", text, err)
				}
			}
			peeked := 0
			for range poison.List(t.Context(), m.poison, &poison.Options{From: m.orders}) {
				peeked++
			}
			if peeked != 0 || depth(t, m.orders) != 0 {
				t.Errorf("got %d messages after the drain", peeked)
			}
		})
	}
}

func TestAListEndsEarly(t *testing.T) {
	m := newMorgue(t)
	for i := range 40 {
		m.bury(t, sealed(t, i, envelope.Head{}), poison.ReasonAttempts, nil)
	}
	for _, beyond := range []bool{false, true} {
		for range poison.List(t.Context(), m.orders, &poison.Options{Beyond: beyond}) {
			break
		}
		got := 0
		for r, err := range poison.List(t.Context(), m.orders, &poison.Options{Beyond: beyond, Max: 3}) {
			if err != nil || r.Reason == "" {
				t.Error(r, err)
			}
			got++
		}
		if got != 3 {
			t.Errorf("got %d entries, want 3", got)
		}
	}
	if got := drain(t, m.poison); len(got) != 40 {
		t.Errorf("got %d visible messages, want 40", len(got))
	}
	for _, err := range poison.List(t.Context(), m.orders.Sibling("-none"), &poison.Options{Beyond: true}) {
		if !errors.Is(err, queue.ErrQueueMissing) {
			t.Errorf("of a missing queue: got %v", err)
		}
	}
}

// Only what the filter chooses goes; the rest is visible again at once. A dry run changes nothing,
// and says what would be done.
func TestOnlyTheChosenAreRedriven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMorgue(t)
		const n = 150
		for i := range n {
			reason, cause := poison.ReasonAttempts, errors.New("no stock for "+strconv.Itoa(i))
			if i%3 == 0 {
				reason, cause = poison.ReasonLost, nil
			}
			m.bury(t, sealed(t, i, envelope.Head{Attempts: 5}), reason, cause)
		}
		o := &poison.Options{Account: m.account, Filter: poison.Filter{Fingerprint: "no stock for 1"}, DryRun: true}
		report, err := poison.Redrive(t.Context(), m.orders, o)
		if err != nil || report.Done != 100 || report.Seen != n || report.Depth != n || depth(t, m.poison) != n || depth(t, m.orders) != 0 {
			t.Fatalf("dry run: got %+v, %v", report, err)
		}
		time.Sleep(2 * time.Second)
		o.DryRun, o.Max = false, 7
		if report, err = poison.Redrive(t.Context(), m.orders, o); err != nil || report.Done != 7 || depth(t, m.orders) != 7 {
			t.Fatalf("7 at most: got %+v, %v", report, err)
		}
		time.Sleep(2 * time.Second)
		o.Max = 0
		var last poison.Summary
		o.Progress = func(r poison.Summary) {
			if r.Done < last.Done || r.Seen < last.Seen {
				t.Errorf("progress went back from %+v to %+v", last, r)
			}
			last = r
		}
		if report, err = poison.Redrive(t.Context(), m.orders, o); err != nil || report.Done != 93 || last.Done != 93 || depth(t, m.orders) != 100 {
			t.Fatalf("the rest: got %+v, %v", report, err)
		}
		time.Sleep(2 * time.Second)
		purged, err := poison.Purge(t.Context(), m.orders, &poison.Options{Filter: poison.Filter{Reason: poison.ReasonLost}})
		if err != nil || purged.Done != 50 || purged.ByReason[poison.ReasonLost].Done != 50 || depth(t, m.poison) != 0 {
			t.Fatalf("purge: got %+v, %v", purged, err)
		}
		if ids := jobs(t, drain(t, m.orders)); len(ids) != 100 || slices.Max(slices.Collect(maps.Values(ids))) != 1 {
			t.Errorf("got %d jobs, want 100, each once", len(ids))
		}
	})
}

// Jobs that fail again while a redrive runs are not redriven by it, or it would never end.
func TestJobsThatFailAgainAreLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMorgue(t)
		const n = 100
		for i := range n {
			m.bury(t, sealed(t, i, envelope.Head{}), poison.ReasonAttempts, nil)
		}
		time.Sleep(2 * time.Second)
		failing := &failsAgain{Queue: m.orders, morgue: m, t: t}
		o := &poison.Options{From: withoutDepth{m.poison}, To: failing, Rate: 10}
		// A signature that may not read the depth is the harder case: nothing else ends it.
		report, err := poison.Redrive(t.Context(), m.orders, o)
		if err != nil || report.Depth != -1 || report.Done < n || report.Done > n+10 { // those of the first second cannot be told apart
			t.Errorf("got %+v, %v; want %d redriven", report, err, n)
		}
		if got := depth(t, m.poison); got != n {
			t.Errorf("got %d records, want %d", got, n)
		}
	})
}

// withoutDepth is a queue whose depth may not be read.
type withoutDepth struct{ queue.Queue }

func (withoutDepth) Properties(context.Context) (queue.Properties, error) {
	return queue.Properties{}, queue.ErrUnauthorized
}

// failsAgain is a queue whose jobs all fail at once, up to some number.
type failsAgain struct {
	failed int
	queue.Queue
	morgue *morgue
	t      *testing.T
}

func (q *failsAgain) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	m, err := q.Queue.Enqueue(ctx, text, o)
	if q.failed++; q.failed <= 500 {
		q.morgue.bury(q.t, text, poison.ReasonAttempts, nil)
	}
	return m, err
}

func TestTheRateBoundsARedrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for rate, want := range map[float64]time.Duration{0.5: 38 * time.Second, 5: 3 * time.Second, 100: 0} {
			m := newMorgue(t)
			for i := range 20 {
				m.bury(t, sealed(t, i, envelope.Head{}), poison.ReasonAttempts, nil)
			}
			begin := time.Now()
			report, err := poison.Redrive(t.Context(), m.orders, &poison.Options{Rate: rate})
			if took := time.Since(begin); err != nil || report.Done != 20 || took.Truncate(time.Second) != want {
				t.Errorf("%v a second: got %+v, %v in %v; want %v", rate, report, err, took, want)
			}
		}
	})
}

// A redrive that is interrupted finishes what it has begun, gives back the rest at once, and says
// how far it came.
func TestAnInterruptedRedriveLosesAndDoublesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMorgue(t)
		for i := range 100 {
			m.bury(t, sealed(t, i, envelope.Head{}), poison.ReasonAttempts, nil)
		}
		ctx, stop := context.WithCancel(t.Context())
		report, err := poison.Redrive(ctx, m.orders, &poison.Options{Parallel: 4, Progress: func(r poison.Summary) {
			if r.Done == 41 {
				stop()
			}
		}})
		if !errors.Is(err, context.Canceled) || report.Done < 41 || report.Done > 44 {
			t.Errorf("got %+v, %v; want 41 to 44 redriven and the context's error", report, err)
		}
		gone, left := jobs(t, drain(t, m.orders)), jobs(t, drain(t, m.poison)) // all of it is visible
		if len(gone) != report.Done || len(gone)+len(left) != 100 {
			t.Errorf("got %d sent and %d left, want %d and the rest", len(gone), len(left), report.Done)
		}
	})
}

// slow is a queue whose sends take a while.
type slow struct{ queue.Queue }

func (q slow) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	time.Sleep(700 * time.Millisecond)
	if err := ctx.Err(); err != nil {
		return queue.Message{}, queue.ErrOutcomeUnknown
	}
	return q.Queue.Enqueue(ctx, text, o)
}

// A page that takes longer than its lease is given back in time, and comes again: nothing is sent
// twice, also with another redrive beside it.
func TestASlowQueueDoublesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMorgue(t)
		const n = 50
		for i := range n {
			m.bury(t, sealed(t, i, envelope.Head{}), poison.ReasonAttempts, nil)
		}
		time.Sleep(2 * time.Second)
		var (
			wait sync.WaitGroup
			mu   sync.Mutex
			sum  int
		)
		for range 2 {
			wait.Go(func() {
				report, err := poison.Redrive(t.Context(), m.orders, &poison.Options{To: slow{m.orders}, Lease: 4 * time.Second})
				if err != nil || report.Doubled != 0 || report.Failed != 0 || report.Seen < report.Done {
					t.Errorf("got %+v, %v", report, err)
				}
				mu.Lock()
				sum += report.Done
				mu.Unlock()
			})
		}
		wait.Wait()
		ids := jobs(t, drain(t, m.orders))
		if len(ids) != n || sum != n || slices.Max(slices.Collect(maps.Values(ids))) != 1 {
			t.Errorf("got %d jobs, %d redriven; want %d, each once", len(ids), sum, n)
		}
	})
}

// refuses is a queue whose sends end with the result of a function.
type refuses struct {
	queue.Queue
	send  func(context.Context) error
	sends int
}

func (q *refuses) Enqueue(ctx context.Context, _ string, _ *queue.EnqueueOptions) (queue.Message, error) {
	q.sends++
	return queue.Message{}, q.send(ctx)
}

// keeps is a queue whose messages cannot be deleted.
type keeps struct{ queue.Queue }

func (keeps) Delete(context.Context, queue.Lease) error { return queue.ErrUnauthorized }

// A redrive that cannot go on ends, with one message in work at a time. A send that hangs ends within
// three quarters of the lease, and its message may be there twice. So may one that was sent and
// cannot be deleted: its lease must end by itself. A missing queue gets one request.
func TestARedriveThatFailsSaysWhatMayBeThereTwice(t *testing.T) {
	lost := 0
	for name, c := range map[string]struct {
		send  func(context.Context) error
		sends int // at most; 0 means 1
		keeps bool
		want  poison.Counts
		err   error
		took  time.Duration
		left  int // visible afterwards
	}{
		"a send that hangs": {
			send: func(ctx context.Context) error { <-ctx.Done(); return queue.ErrOutcomeUnknown },
			want: poison.Counts{Failed: 1, Doubled: 1}, err: queue.ErrOutcomeUnknown, took: 3 * time.Second, // its lease is nearly over
		},
		"a send without permission": {
			send: func(context.Context) error { return queue.ErrUnauthorized },
			want: poison.Counts{Failed: 1}, err: queue.ErrUnauthorized, left: 2,
		},
		"a response that is lost": {
			send: func(context.Context) error {
				if lost++; lost == 1 {
					return queue.ErrOutcomeUnknown
				}
				return nil
			},
			sends: 3, want: poison.Counts{Done: 2, Doubled: 1},
		},
		"no queue": {
			send: func(context.Context) error { return queue.ErrQueueMissing },
			want: poison.Counts{Failed: 2}, left: 2,
		},
		"no delete": {keeps: true, want: poison.Counts{Done: 1, Doubled: 1}, err: queue.ErrUnauthorized},
		"no fault":  {want: poison.Counts{Done: 2}},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMorgue(t)
			for i := range 2 {
				m.bury(t, sealed(t, i, envelope.Head{}), poison.ReasonAttempts, nil)
			}
			from, to, begin := m.poison, m.orders, time.Now()
			if c.keeps {
				from = keeps{from}
			}
			refusing := &refuses{Queue: m.orders, send: c.send}
			if c.send != nil {
				to = refusing
			}
			report, err := poison.Redrive(t.Context(), m.orders, &poison.Options{From: from, To: to, Lease: 4 * time.Second})
			if c.keeps {
				purged, err := poison.Purge(t.Context(), m.orders, &poison.Options{From: from})
				if want := (poison.Counts{Failed: 1}); !errors.Is(err, c.err) || purged.Counts != want {
					t.Errorf("%s: purged %+v, %v; want %+v, %v", name, purged, err, want, c.err)
				}
			}
			took, left := time.Since(begin), len(drain(t, m.poison))
			if !errors.Is(err, c.err) || report.Counts != c.want || took.Truncate(time.Second) != c.took || refusing.sends > max(c.sends, 1) || left != c.left {
				t.Errorf("%s: got %+v, %v after %v and %d sends, %d left; want %+v, %v after %v, %d left",
					name, report, err, took, refusing.sends, left, c.want, c.err, c.took, c.left)
			}
		})
	}
}
