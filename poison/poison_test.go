package poison_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// setup returns an existing queue and a poison queue that does not exist yet.
func setup(t rapid.TB) *localqueue.Queue {
	t.Helper()
	q := localqueue.New(nil).Queue(queue.Name{Account: "acme", Queue: "orders"})
	if err := q.Create(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	return q
}

func policy(t rapid.TB, p poison.Policy, q queue.Queue) poison.Policy {
	t.Helper()
	p, err := p.WithDefaults(q)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func only(t rapid.TB, q queue.Queue) queue.Message {
	t.Helper()
	batch, err := q.Peek(context.Background(), 32)
	if err != nil || len(batch) != 1 {
		t.Fatalf("%d messages in %v, %v; want one", len(batch), q.Name(), err)
	}
	return batch[0]
}

var from = queue.Name{Account: "acme", Queue: "orders"}

func message(text string) queue.Message {
	inserted := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	return queue.Message{
		Lease: queue.Lease{ID: "m-1", Receipt: "secret"}, Text: text, DequeueCount: 5,
		Inserted: inserted, Expires: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	}
}

// P-05: the copy never expires and has the original id, queue, counts, times and last error;
// the poison queue is created when missing.
func TestTheCopyKeepsEverything(t *testing.T) {
	q := setup(t)
	p := policy(t, poison.Policy{}, q)
	m := message(`{"ID":"7"}`)
	m.Expires = m.Inserted.Add(time.Hour)
	if err := p.Copy(t.Context(), poison.NewRecord(from, m, 4, poison.ReasonAttempts, errors.New("no stock"))); err != nil {
		t.Fatal(err)
	}
	kept := only(t, q.Sibling("-poison"))
	if kept.Expires.Year() != 9999 {
		t.Errorf("the copy expires at %v, want never", kept.Expires)
	}
	r, err := poison.ParseRecord(kept.Text)
	if err != nil {
		t.Fatal(err)
	}
	if r.ID != "m-1" || r.Account != "acme" || r.Queue != "orders" || r.DequeueCount != 5 || r.Attempts != 4 ||
		!r.Inserted.Equal(m.Inserted) || r.Expires == nil || !r.Expires.Equal(m.Expires) || r.Poisoned.IsZero() ||
		r.Error != "no stock" || r.Reason != poison.ReasonAttempts || r.Text != m.Text {
		t.Errorf("record %+v; want message m-1 of acme/orders with 5 deliveries, 4 attempts, inserted %v, expiring %v, error \"no stock\", reason attempts and text %s", r, m.Inserted, m.Expires, m.Text)
	}
	if strings.Contains(kept.Text, "secret") {
		t.Errorf("the record has the receipt: %s", kept.Text)
	}
}

// A handler's error may contain characters that XML cannot carry: the message is copied
// nevertheless, also with a forged reason.
func TestAnErrorThatXMLCannotCarryIsKept(t *testing.T) {
	check := func(t rapid.TB, said string) {
		q := setup(t)
		p := policy(t, poison.Policy{}, q)
		r := poison.NewRecord(from, message("{}"), 5, poison.Reason(said), errors.New(said))
		if err := p.Copy(context.Background(), r); err != nil {
			t.Fatalf("%q: %v", said, err)
		}
		kept, err := poison.ParseRecord(only(t, q.Sibling("-poison")).Text)
		// What is no UTF-8 has become U+FFFD.
		if want := string([]rune(said)); err != nil || kept.Error != want || string(kept.Reason) != want || kept.Text != "{}" {
			t.Errorf("%q: the record is %+v, %v; want that error and reason, and text {}", said, kept, err)
		}
	}
	for _, said := range []string{
		"\uFFFF", "read \uFFFE at 7", `a \uFFFF written out`, "\\\uFFFF", "\x00\x1b[31m", "caf\xe9", "\xed\xa0\x80", "a\r\nb\u2028c\x7f", `<&>"'`, "\uFDD0\U0010FFFF",
	} {
		check(t, said)
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t, rapid.OneOf(
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
			rapid.StringOf(rapid.SampledFrom([]rune("\uFFFE\uFFFF\uFFFD\\u\x00\"x"))),
		).Draw(t, "error"))
	})
	// Angle brackets take no more than themselves.
	brackets := setup(t)
	if err := policy(t, poison.Policy{}, brackets).Copy(t.Context(), poison.NewRecord(from, message(strings.Repeat("<", 20_000)), 5, poison.ReasonAttempts, errors.New("no stock"))); err != nil {
		t.Fatal(err)
	}
	if r, err := poison.ParseRecord(only(t, brackets.Sibling("-poison")).Text); err != nil || r.Error != "no stock" {
		t.Errorf("with 20,000 brackets in the text the record is %.80v, %v; want error \"no stock\"", r, err)
	}
	// One that is too long keeps its beginning.
	q := setup(t)
	p := policy(t, poison.Policy{}, q)
	if err := p.Copy(t.Context(), poison.NewRecord(from, message("{}"), 5, poison.ReasonAttempts, errors.New(strings.Repeat("\uFFFF", 30_000)))); err != nil {
		t.Fatal(err)
	}
	if r, err := poison.ParseRecord(only(t, q.Sibling("-poison")).Text); err != nil || !strings.HasPrefix(r.Error, "\uFFFF\uFFFF") {
		t.Errorf("the record is %.200v, %v; want the beginning of the error", r, err)
	}
}

// No message is too large to be moved, and the copy is either a record with the whole text or
// the bare text.
func TestAnyMessageFits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		q := setup(t)
		p := policy(t, poison.Policy{}, q)
		letter := rapid.SampledFrom([]string{"x", `"`, "<", "ü", "\t"}).Draw(rt, "letter")
		room := queue.MaxText / len(letter)
		size := rapid.OneOf(rapid.IntRange(0, room), rapid.IntRange(room-1000, room)).Draw(rt, "size")
		cause := errors.New(strings.Repeat("é", rapid.IntRange(0, 40_000).Draw(rt, "error")))
		text := strings.Repeat(letter, size)
		if err := p.Copy(t.Context(), poison.NewRecord(from, message(text), 5, poison.ReasonRejected, cause)); err != nil {
			rt.Fatal(err)
		}
		kept := only(t, q.Sibling("-poison"))
		if kept.Text == text {
			return
		}
		if r, err := poison.ParseRecord(kept.Text); err != nil || r.Text != text {
			rt.Fatalf("the copy is neither a record of the text nor the text: %v", err)
		}
	})
}

func TestBareCopiesTheTextAlone(t *testing.T) {
	q := setup(t)
	p := policy(t, poison.Policy{Bare: true}, q)
	if err := p.Copy(t.Context(), poison.NewRecord(from, message("as it was"), 5, poison.ReasonRejected, nil)); err != nil {
		t.Fatal(err)
	}
	if kept := only(t, q.Sibling("-poison")); kept.Text != "as it was" {
		t.Errorf("got %q, want \"as it was\"", kept.Text)
	}
}

func TestAQueueOfYourOwn(t *testing.T) {
	q := setup(t)
	p := policy(t, poison.Policy{Queue: q.Sibling("-rejects")}, q)
	if err := p.Copy(t.Context(), poison.NewRecord(from, message("x"), 1, poison.ReasonUndecodable, nil)); err != nil {
		t.Fatal(err)
	}
	only(t, q.Sibling("-rejects"))
}

// flaky fails the first enqueues.
type flaky struct {
	queue.Queue
	failures int
	err      error
}

func (f *flaky) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	if f.failures > 0 {
		f.failures--
		return queue.Message{}, f.err
	}
	return f.Queue.Enqueue(ctx, text, o)
}

func TestACopyIsRepeatedUntilItIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := setup(t)
		f := &flaky{Queue: q.Sibling("-poison"), failures: 3, err: queue.ErrThrottled}
		p := policy(t, poison.Policy{Queue: f}, q)
		if err := p.Copy(t.Context(), poison.NewRecord(from, message("x"), 1, poison.ReasonAttempts, nil)); err != nil {
			t.Fatal(err)
		}
		only(t, q.Sibling("-poison"))

		f.failures, f.err = 1, queue.ErrUnauthorized
		err := p.Copy(t.Context(), poison.NewRecord(from, message("x"), 1, poison.ReasonAttempts, nil))
		if !errors.Is(err, queue.ErrUnauthorized) || !strings.Contains(err.Error(), "m-1") {
			t.Errorf("got %v, want %v of message m-1", err, queue.ErrUnauthorized)
		}
	})
}

// A copy that does not succeed in time is an error, even if the failure is transient.
func TestACopyThatIsNotMadeInTimeIsAnError(t *testing.T) {
	for _, kind := range []error{queue.ErrThrottled, queue.ErrUnavailable, queue.ErrOutcomeUnknown} {
		synctest.Test(t, func(t *testing.T) {
			q := setup(t)
			p := policy(t, poison.Policy{Queue: &flaky{Queue: q.Sibling("-poison"), failures: 1 << 30, err: kind}}, q)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := p.Copy(ctx, poison.NewRecord(from, message("x"), 1, poison.ReasonAttempts, nil)); !errors.Is(err, kind) {
				t.Errorf("got %v, want %v", err, kind)
			}
		})
	}
}

// P-02: each queue has its own bounds, with defaults.
func TestDefaultsOfThePolicy(t *testing.T) {
	engine := localqueue.New(nil)
	named := func(name string) queue.Queue { return engine.Queue(queue.Name{Account: "acme", Queue: name}) }
	p := policy(t, poison.Policy{}, named("orders"))
	if p.MaxAttempts != 5 || p.Keep || p.Queue.Name().Queue != "orders-poison" {
		t.Errorf("got %+v, want 5 attempts and the queue orders-poison", p)
	}
	for _, name := range []string{"orders-poison", strings.Repeat("a", 60)} {
		if p := policy(t, poison.Policy{}, named(name)); !p.Keep || p.Queue != nil {
			t.Errorf("%s: got %+v, want one that keeps", name, p)
		}
	}
	for name, bad := range map[string]poison.Policy{
		"attempts": {MaxAttempts: -1},
		"itself":   {Queue: named("orders")},
		"both":     {Keep: true, Queue: named("other")},
	} {
		if _, err := bad.WithDefaults(named("orders")); err == nil {
			t.Errorf("%s: accepted, want an error", name)
		}
	}
	if err := (poison.Policy{Keep: true}).Copy(t.Context(), poison.Record{}); err == nil {
		t.Error("a policy that keeps made a copy, want an error")
	}
}

func TestWhatIsNoRecordIsRefused(t *testing.T) {
	for _, text := range []string{"", "{}", "[1]", "words", `{"millracePoison":0}`} {
		if _, err := poison.ParseRecord(text); err == nil {
			t.Errorf("%q was read as a record, want an error", text)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add(`{"millracePoison":1,"text":"x"}`)
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := poison.ParseRecord(text); err == nil && r.Version < 1 {
			t.Errorf("%q was read as version %d, want at least 1", text, r.Version)
		}
	})
}

// absent is an error whose method panics on nil.
type absent struct{ text string }

func (a *absent) Error() string { return a.text }

// A handler's error whose Error method panics does not keep the message from being moved.
func TestAnErrorWithoutATextIsRecorded(t *testing.T) {
	r := poison.NewRecord(from, message("x"), 1, poison.ReasonRejected, (*absent)(nil))
	if !strings.Contains(r.Error, "*poison_test.absent") {
		t.Errorf("error %q, want the type of the one without a text", r.Error)
	}
}
