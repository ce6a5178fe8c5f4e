package poison_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// scripted is a poison queue whose calls fail with these errors in order, and then work. It
// records what was enqueued.
type scripted struct {
	queue.Queue
	enqueue, create []error
	texts           []string
	options         []queue.EnqueueOptions
}

// pop returns the next error of a script.
func pop(script *[]error) error {
	if len(*script) == 0 {
		return nil
	}
	err := (*script)[0]
	*script = (*script)[1:]
	return err
}

func (s *scripted) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	s.texts, s.options = append(s.texts, text), append(s.options, *o)
	if err := pop(&s.enqueue); err != nil {
		return queue.Message{}, err
	}
	return s.Queue.Enqueue(ctx, text, o)
}

func (s *scripted) Create(ctx context.Context, metadata map[string]string) error {
	if err := pop(&s.create); err != nil {
		return err
	}
	return s.Queue.Create(ctx, metadata)
}

// script returns a poison queue that exists, and a policy that moves to it.
func script(t *testing.T) (*scripted, poisonrecord.Policy) {
	t.Helper()
	q := setup(t)
	sibling, ok := q.Sibling("-poison").(queue.Manager)
	if !ok {
		t.Fatalf("the sibling is a %T", q.Sibling("-poison"))
	}
	if err := sibling.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	s := &scripted{Queue: sibling}
	return s, policy(t, poisonrecord.Policy{Queue: s}, q)
}

// P-05: every copy that is sent never expires and is visible at once: in a queue that exists or
// was created, by this process or another, the first try and the later ones, the record and the
// bare text.
func TestEveryCopyThatIsSentNeverExpires(t *testing.T) {
	for name, c := range map[string]struct {
		enqueue, create []error
		bare            bool
		sent            int
	}{
		"existing":           {sent: 1},
		"bare":               {bare: true, sent: 1},
		"created by another": {enqueue: []error{queue.ErrQueueMissing}, create: []error{queue.ErrQueueExists}, sent: 2},
		"repeated":           {enqueue: []error{queue.ErrThrottled, queue.ErrOutcomeUnknown, queue.ErrUnavailable}, sent: 4},
		"shortened":          {enqueue: []error{queue.ErrTooLarge, queue.ErrTooLarge, queue.ErrTooLarge}, sent: 4},
		"repeated, then created": {
			enqueue: []error{queue.ErrThrottled, queue.ErrQueueMissing, queue.ErrThrottled}, create: []error{queue.ErrQueueExists}, sent: 4,
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, p := script(t)
			s.enqueue, s.create, p.Bare = c.enqueue, c.create, c.bare
			cause := errors.New(strings.Repeat("no stock ", 100))
			if err := p.Copy(t.Context(), poisonrecord.New(from, message("x"), 5, poison.ReasonAttempts, cause)); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if len(s.options) != c.sent {
				t.Errorf("%s: %d copies were sent, want %d", name, len(s.options), c.sent)
			}
			for i, o := range s.options {
				if o.TTL != queue.Forever || o.Delay != 0 {
					t.Errorf("%s: copy %d has TTL %v and delay %v, want %v and 0", name, i, o.TTL, o.Delay, queue.Forever)
				}
			}
			if kept := onlyMessage(t, s.Queue); kept.Expires.Year() != 9999 {
				t.Errorf("%s: the copy expires at %v, want never", name, kept.Expires)
			}
		})
	}
}

// A poison queue that cannot be created says why, and not that it is missing.
func TestAPoisonQueueThatCannotBeCreatedSaysWhy(t *testing.T) {
	s, p := script(t)
	s.enqueue, s.create = []error{queue.ErrQueueMissing}, []error{queue.ErrUnauthorized}
	err := p.Copy(t.Context(), poisonrecord.New(from, message("x"), 5, poison.ReasonAttempts, nil))
	if !errors.Is(err, queue.ErrUnauthorized) || errors.Is(err, queue.ErrQueueMissing) {
		t.Errorf("got %v, want %v", err, queue.ErrUnauthorized)
	}
	if len(s.texts) != 1 {
		t.Errorf("%d copies were sent, want 1: there was no queue for another", len(s.texts))
	}
}

// What does not fit is sent with less and less, each text once: with the beginning of the error,
// without it, without what can be derived, and bare. If nothing fits, that is the error.
func TestACopyThatDoesNotFitIsSentWithLess(t *testing.T) {
	tooLarge := slices.Repeat([]error{queue.ErrTooLarge}, 5)
	long := "x" + strings.Repeat("é", 500) // 512 bytes end within a letter
	for name, c := range map[string]struct {
		cause error
		want  []string // the errors of the records; then comes the bare text
	}{
		"long error":  {errors.New(long), []string{long, long[:511] + " …", "", ""}},
		"512 bytes":   {errors.New(strings.Repeat("x", 512)), []string{strings.Repeat("x", 512), "", ""}},
		"513 bytes":   {errors.New(strings.Repeat("x", 513)), []string{strings.Repeat("x", 513), "", ""}}, // shortened it would be longer
		"short error": {errors.New("no stock"), []string{"no stock", "", ""}},
		"no error":    {nil, []string{"", ""}},
	} {
		s, p := script(t)
		s.enqueue = tooLarge
		err := p.Copy(t.Context(), poisonrecord.New(from, message("the text"), 5, poison.ReasonAttempts, c.cause))
		if !errors.Is(err, queue.ErrTooLarge) || !strings.Contains(err.Error(), "m-1") {
			t.Errorf("%s: got %v, want %v of message m-1", name, err, queue.ErrTooLarge)
		}
		if len(s.texts) != len(c.want)+1 {
			t.Fatalf("%s: %d texts were sent, want %d records and the bare text", name, len(s.texts), len(c.want))
		}
		for i, want := range c.want {
			if r, err := poison.ParseRecord(s.texts[i]); err != nil || r.Error != want || r.Text != "the text" {
				t.Errorf("%s: record %d has error %q and text %q, %v; want %q and the text", name, i, r.Error, r.Text, err, want)
			}
		}
		if last := s.texts[len(s.texts)-1]; last != "the text" {
			t.Errorf("%s: the last text is %q, want the bare one", name, last)
		}
	}
}

// Every field of a record is that of its message: no expiry where there is none, no error where
// there is none, the attempts and not the deliveries, and the time of the move in UTC.
func TestARecordIsOfItsMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := message("x")
		never := poisonrecord.New(from, m, 4, poison.ReasonLost, nil)
		if never.Attempts != 4 || never.DequeueCount != 5 {
			t.Errorf("attempts %d, dequeue count %d; want 4 and 5", never.Attempts, never.DequeueCount)
		}
		if never.Account != "acme" || never.Queue != "orders" || never.ID != "m-1" {
			t.Errorf("account %q, queue %q, id %q; want acme, orders, and m-1", never.Account, never.Queue, never.ID)
		}
		if never.Error != "" || never.Reason != poison.ReasonLost {
			t.Errorf("error %q, reason %q; want none and lost", never.Error, never.Reason)
		}
		if never.Expires != nil {
			t.Errorf("a message that never expires has expiry %v", never.Expires)
		}
		if !never.Poisoned.Equal(time.Now()) || never.Poisoned.Location() != time.UTC || !never.Inserted.Equal(m.Inserted) {
			t.Errorf("poisoned %v, inserted %v; want %v in UTC and %v", never.Poisoned, never.Inserted, time.Now(), m.Inserted)
		}
		m.Expires = time.Time{}
		if unknown := poisonrecord.New(from, m, 4, poison.ReasonLost, nil); unknown.Expires != nil {
			t.Errorf("a message whose expiry is unknown has expiry %v", unknown.Expires)
		}
		m.Expires = time.Date(9998, 12, 31, 0, 0, 0, 0, time.UTC)
		if late := poisonrecord.New(from, m, 4, poison.ReasonLost, nil); late.Expires == nil || !late.Expires.Equal(m.Expires) {
			t.Errorf("expiry %v, want %v", late.Expires, m.Expires)
		}
	})
}

// P-02: what a policy sets stays, and what it leaves out has its default.
func TestWhatAPolicySetsStays(t *testing.T) {
	q := setup(t)
	for _, c := range []struct{ set, want [2]int }{
		{[2]int{0, 0}, [2]int{5, 5}},
		{[2]int{7, 0}, [2]int{7, 5}},
		{[2]int{0, 7}, [2]int{5, 7}},
		{[2]int{1, 1}, [2]int{1, 1}},
	} {
		p := policy(t, poisonrecord.Policy{MaxAttempts: c.set[0], MaxLost: c.set[1]}, q)
		if got := [2]int{p.MaxAttempts, p.MaxLost}; got != c.want {
			t.Errorf("attempts and lost starts of %v: got %v, want %v", c.set, got, c.want)
		}
	}
	for _, bad := range []poisonrecord.Policy{{MaxAttempts: -1}, {MaxLost: -1}} {
		if _, err := bad.WithDefaults(q); err == nil {
			t.Errorf("%d attempts, %d lost starts: accepted, want an error", bad.MaxAttempts, bad.MaxLost)
		}
	}
}
