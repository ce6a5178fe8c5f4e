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

	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// setup returns an existing queue and a poison queue that does not exist yet.
func setup(t rapid.TB) queue.Manager {
	t.Helper()
	q := must(localqueue.New(nil)).Queue(queue.Name{Account: "acme", Queue: "orders"})
	if err := q.Create(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	return q
}

func policy(t rapid.TB, p poisonrecord.Policy, q queue.Queue) poisonrecord.Policy {
	t.Helper()
	p, err := p.WithDefaults(q)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// onlyMessage returns the only message of a queue.
func onlyMessage(t rapid.TB, q queue.Queue) queue.Message {
	t.Helper()
	batch, err := q.Peek(context.Background(), 32)
	if err != nil || len(batch) != 1 {
		t.Fatalf("%v: got %d messages, error %v; want 1", q.Name(), len(batch), err)
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
	p := policy(t, poisonrecord.Policy{}, q)
	m := message(`{"ID":"7"}`)
	m.Expires = m.Inserted.Add(time.Hour)
	if err := p.Copy(t.Context(), poisonrecord.New(from, m, 4, poison.ReasonAttempts, errors.New("no stock"))); err != nil {
		t.Fatal(err)
	}
	kept := onlyMessage(t, q.Sibling("-poison"))
	if kept.Expires.Year() != 9999 {
		t.Errorf("expiry of the copy: got %v, want never", kept.Expires)
	}
	r, err := poison.ParseRecord(kept.Text)
	if err != nil {
		t.Fatal(err)
	}
	if r.ID != "m-1" || r.Account != "acme" || r.Queue != "orders" || r.DequeueCount != 5 || r.Attempts != 4 ||
		!r.Inserted.Equal(m.Inserted) || r.Expires == nil || !r.Expires.Equal(m.Expires) || r.Poisoned.IsZero() ||
		r.Error != "no stock" || r.Reason != poison.ReasonAttempts || r.Text != m.Text {
		t.Errorf("got record %+v, want the fields of message m-1 after 4 attempts", r)
	}
	if strings.Contains(kept.Text, "secret") {
		t.Error("got the receipt in the record, want it left out")
	}
}

// A handler's error may contain characters that XML cannot carry: the message is copied
// nevertheless, also with a forged reason.
func TestAnErrorThatXMLCannotCarryIsKept(t *testing.T) {
	check := func(t rapid.TB, text string) {
		q := setup(t)
		p := policy(t, poisonrecord.Policy{}, q)
		r := poisonrecord.New(from, message("{}"), 5, poison.Reason(text), errors.New(text))
		if err := p.Copy(context.Background(), r); err != nil {
			t.Fatalf("%q: got error %v, want nil", text, err)
		}
		kept, err := poison.ParseRecord(onlyMessage(t, q.Sibling("-poison")).Text)
		// Invalid UTF-8 becomes U+FFFD.
		if want := string([]rune(text)); err != nil || kept.Error != want || string(kept.Reason) != want || kept.Text != "{}" {
			t.Errorf("%q: got record %+v, %v; want error and reason %q", text, kept, err, want)
		}
	}
	for _, text := range []string{
		"\uFFFF", "read \uFFFE at 7", `a \uFFFF written out`, "\\\uFFFF", "\x00\x1b[31m",
		"caf\xe9", "\xed\xa0\x80", "a\r\nb\u2028c\x7f", `<&>"'`, "\uFDD0\U0010FFFF",
	} {
		check(t, text)
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t, rapid.OneOf(
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
			rapid.StringOf(rapid.SampledFrom([]rune("\uFFFE\uFFFF\uFFFD\\u\x00\"x"))),
		).Draw(t, "error"))
	})
	// JSON does not escape angle brackets.
	brackets := setup(t)
	r := poisonrecord.New(from, message(strings.Repeat("<", 20_000)), 5, poison.ReasonAttempts, errors.New("no stock"))
	if err := policy(t, poisonrecord.Policy{}, brackets).Copy(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if r, err := poison.ParseRecord(onlyMessage(t, brackets.Sibling("-poison")).Text); err != nil || r.Error != "no stock" {
		t.Errorf("20,000 brackets in the text: got record %.80v, %v; want the error \"no stock\"", r, err)
	}
	// The beginning of a long error is kept.
	q := setup(t)
	p := policy(t, poisonrecord.Policy{}, q)
	r = poisonrecord.New(from, message("{}"), 5, poison.ReasonAttempts, errors.New(strings.Repeat("\uFFFF", 30_000)))
	if err := p.Copy(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if r, err := poison.ParseRecord(onlyMessage(t, q.Sibling("-poison")).Text); err != nil || !strings.HasPrefix(r.Error, "\uFFFF\uFFFF") {
		t.Errorf("long error: got record %+v, %v; want its beginning", r, err)
	}
}

// No message is too large to be moved, and the copy is either a record with the whole text or
// the bare text.
func TestAnyMessageFits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		q := setup(t)
		p := policy(t, poisonrecord.Policy{}, q)
		letter := rapid.SampledFrom([]string{"x", `"`, "<", "ü", "\t"}).Draw(rt, "letter")
		room := queue.MaxText / len(letter)
		size := rapid.OneOf(rapid.IntRange(0, room), rapid.IntRange(room-1000, room)).Draw(rt, "size")
		cause := errors.New(strings.Repeat("é", rapid.IntRange(0, 40_000).Draw(rt, "error")))
		text := strings.Repeat(letter, size)
		if err := p.Copy(t.Context(), poisonrecord.New(from, message(text), 5, poison.ReasonRejected, cause)); err != nil {
			rt.Fatal(err)
		}
		kept := onlyMessage(t, q.Sibling("-poison"))
		if kept.Text == text {
			return
		}
		if r, err := poison.ParseRecord(kept.Text); err != nil || r.Text != text {
			rt.Fatalf("got neither a record with the text nor the bare text: %v", err)
		}
	})
}

// A message that has no room for a record keeps what a redrive needs.
func TestTheLeastOfARecordIsInTheHead(t *testing.T) {
	q := setup(t)
	const head = "millrace/1?id=7&at=1000"
	body := "\n" + strings.Repeat("x", queue.MaxText-envelope.Room-len(head)-1)
	m := message(head + "&n=4&s=4" + body)
	m.Expires = time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	if err := policy(t, poisonrecord.Policy{}, q).Copy(t.Context(), poisonrecord.New(from, m, 5, poison.ReasonUndecodable, errors.New("broken"))); err != nil {
		t.Fatal(err)
	}
	kept := onlyMessage(t, q.Sibling("-poison"))
	e := poisonrecord.NewEntry(kept)
	r := e.Record
	if r.Reason != poison.ReasonUndecodable || r.Attempts != 5 || r.Queue != from.Queue || r.Expires == nil || !r.Expires.Equal(m.Expires) || r.Job != "7" {
		t.Errorf("got the record %+v, want the reason, 5 attempts, the queue, and the expiry of the message", r)
	}
	if r.Text != head+body || !r.FirstSeen.Equal(time.Unix(1, 0)) || !r.Poisoned.Equal(kept.Inserted) {
		t.Errorf("got a text of %d bytes, sent %v, and poison since %v; want that of a new job, 1 s after 1970, and %v", len(r.Text), r.FirstSeen, r.Poisoned, kept.Inserted)
	}
}

func TestBareCopiesTheTextAlone(t *testing.T) {
	q := setup(t)
	p := policy(t, poisonrecord.Policy{Bare: true}, q)
	if err := p.Copy(t.Context(), poisonrecord.New(from, message("as it was"), 5, poison.ReasonRejected, nil)); err != nil {
		t.Fatal(err)
	}
	if kept := onlyMessage(t, q.Sibling("-poison")); kept.Text != "as it was" {
		t.Errorf("got %q, want \"as it was\"", kept.Text)
	}
}

func TestTheCopyGoesToTheQueueOfThePolicy(t *testing.T) {
	q := setup(t)
	p := policy(t, poisonrecord.Policy{Queue: q.Sibling("-rejects")}, q)
	if err := p.Copy(t.Context(), poisonrecord.New(from, message("x"), 1, poison.ReasonUndecodable, nil)); err != nil {
		t.Fatal(err)
	}
	onlyMessage(t, q.Sibling("-rejects"))
}

// failingQueue fails the first enqueues.
type failingQueue struct {
	queue.Queue
	failures int
	err      error
}

func (f *failingQueue) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	if f.failures > 0 {
		f.failures--
		return queue.Message{}, f.err
	}
	return f.Queue.Enqueue(ctx, text, o)
}

func TestACopyIsRetriedUntilItIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := setup(t)
		f := &failingQueue{Queue: q.Sibling("-poison"), failures: 3, err: queue.ErrThrottled}
		p := policy(t, poisonrecord.Policy{Queue: f}, q)
		if err := p.Copy(t.Context(), poisonrecord.New(from, message("x"), 1, poison.ReasonAttempts, nil)); err != nil {
			t.Fatal(err)
		}
		onlyMessage(t, q.Sibling("-poison"))

		f.failures, f.err = 1, queue.ErrUnauthorized
		err := p.Copy(t.Context(), poisonrecord.New(from, message("x"), 1, poison.ReasonAttempts, nil))
		if !errors.Is(err, queue.ErrUnauthorized) || !strings.Contains(err.Error(), "m-1") {
			t.Errorf("got %v; want ErrUnauthorized with the message m-1", err)
		}
	})
}

// A copy that does not succeed in time is an error, even if the failure is transient.
func TestACopyThatIsNotMadeInTimeIsAnError(t *testing.T) {
	for _, kind := range []error{queue.ErrThrottled, queue.ErrUnavailable, queue.ErrOutcomeUnknown} {
		synctest.Test(t, func(t *testing.T) {
			q := setup(t)
			failing := &failingQueue{Queue: q.Sibling("-poison"), failures: 1 << 30, err: kind}
			p := policy(t, poisonrecord.Policy{Queue: failing}, q)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := p.Copy(ctx, poisonrecord.New(from, message("x"), 1, poison.ReasonAttempts, nil)); !errors.Is(err, kind) {
				t.Errorf("%v until the time-out: got error %v, want it", kind, err)
			}
		})
	}
}

// P-02: each queue has its own bounds, with defaults.
func TestDefaultsOfThePolicy(t *testing.T) {
	engine := must(localqueue.New(nil))
	named := func(name string) queue.Queue { return engine.Queue(queue.Name{Account: "acme", Queue: name}) }
	p := policy(t, poisonrecord.Policy{}, named("orders"))
	if p.MaxAttempts != 5 || p.Keep || p.Queue.Name().Queue != "orders-poison" {
		t.Errorf("got %+v, want 5 attempts and the queue orders-poison", p)
	}
	for _, name := range []string{"orders-poison", strings.Repeat("a", 60)} {
		if p := policy(t, poisonrecord.Policy{}, named(name)); !p.Keep || p.Queue != nil {
			t.Errorf("%s: got %+v, want Keep", name, p)
		}
	}
	for name, bad := range map[string]poisonrecord.Policy{
		"attempts": {MaxAttempts: -1},
		"itself":   {Queue: named("orders")},
		"both":     {Keep: true, Queue: named("other")},
	} {
		if _, err := bad.WithDefaults(named("orders")); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
	if err := (poisonrecord.Policy{Keep: true}).Copy(t.Context(), poisonrecord.Record{}); err == nil {
		t.Error("Copy of a policy with Keep: got no error, want one")
	}
}

func TestATextThatIsNotARecordIsAnError(t *testing.T) {
	for _, text := range []string{"", "{}", "[1]", "words", `{"millracePoison":0}`} {
		if _, err := poison.ParseRecord(text); err == nil {
			t.Errorf("%q: got no error, want one", text)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add(`{"millracePoison":1,"text":"x"}`)
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := poison.ParseRecord(text); err != nil && r != (poison.Record{}) {
			t.Errorf("%q: got %+v with the error %v, want no record", text, r, err)
		}
	})
}
