package kinds_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/codec/claimcheck"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/kinds"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
)

// O-02: kind, claim and group combine in one message. A worker that lacks one of them leaves it alone;
// the others retry, poison and redrive its items, and its blob stays until all are done.
func TestAGroupOfAKindInABlob(t *testing.T) {
	bubble(t, func(b *bundle) {
		store := &openCountingStore{Store: blob.Memory()}
		claims, err := claimcheck.New(store, "bodies", nil)
		if err != nil {
			b.Fatal(err)
		}
		group := make([]email, 100)
		for i := range group {
			group[i].To = fmt.Sprintf("%d %s", i, strings.Repeat("x", 1000))
		}
		if _, err := emails.Producer(b.queue, &producer.Options[email]{Claims: claims}).SendGroup(b.Context(), group, nil); err != nil {
			b.Fatal(err)
		}

		without := b.run(5*time.Minute, b.kindsOf(emails.Handle(handler[email](b, nil), nil)))
		b.options.Claims = claims
		other := b.run(5*time.Minute, b.kindsOf(orders.Handle(handler[order](b, nil), nil)))
		if without.Outcomes[listener.Snoozed] == 0 || other.Outcomes[listener.Snoozed] == 0 || without.Outcomes[listener.Poisoned]+other.Outcomes[listener.Poisoned] != 0 || store.opened.Load() != 0 {
			b.Fatalf("workers that cannot read it say %+v and %+v, and opened %d", without, other, store.opened.Load())
		}

		var mu sync.Mutex
		calls := map[int]int{}
		mended := false
		each := listener.EachItem(func(_ context.Context, m *listener.Message[email]) error {
			mu.Lock()
			defer mu.Unlock()
			calls[m.Item]++
			if m.Body != group[m.Item] || m.Kind != "email" || m.MaxAttempts != 3 {
				t.Errorf("item %d is %.20q of kind %q, of at most %d attempts", m.Item, m.Body.To, m.Kind, m.MaxAttempts)
			}
			switch {
			case m.Item == 17 && !mended, m.Item == 18 && calls[18] == 1:
				return errors.New("no")
			case m.Item == 99 && !mended:
				return listener.Poison(errors.New("never"))
			}
			return nil
		}, 10)
		work := func() { b.run(time.Hour, b.kindsOf(emails.Handle(each, &kinds.Options{MaxAttempts: 3}))) }
		work()
		records := b.records()
		if len(records) != 1 || b.depth() != 0 || stored(b, claims) != 1 {
			b.Fatalf("got %d records, %d messages, %d bodies; want one record and its body", len(records), b.depth(), stored(b, claims))
		}
		head, _, _, err := envelope.Open(records[0].Text, codec.Envelope, envelope.Kinds, envelope.Claims, envelope.Groups)
		if err != nil || head.Done.Len() != 98 || head.Done.Has(17) || head.Done.Has(99) {
			b.Errorf("the record has %+v, %v; want all done but two", head, err)
		}

		mended = true
		if _, err := poison.Redrive(b.Context(), b.queue, nil); err != nil {
			b.Fatal(err)
		}
		work()
		for i := range group {
			if want := map[int]int{17: 4, 18: 2, 99: 2}[i]; calls[i] != max(want, 1) {
				b.Errorf("item %d was handled %d times", i, calls[i])
			}
		}
		if len(b.records()) != 0 || b.depth() != 0 || stored(b, claims) != 0 {
			b.Errorf("%d records, %d messages, %d bodies are left", len(b.records()), b.depth(), stored(b, claims))
		}
	})
}

// stored returns how many bodies are stored that a message may need.
func stored(b *bundle, claims *claimcheck.Claims) int {
	b.Helper()
	n := 0
	for body, err := range claims.List(b.Context()) {
		if err != nil {
			b.Fatal(err)
		}
		if !body.Settled {
			n++
		}
	}
	return n
}

// A group of a kind is handled under the options of its kind, and left alone where the kind is unknown.
func TestAGroupOfAKindIsHandledAsThatKind(t *testing.T) {
	bubble(t, func(b *bundle) {
		if _, err := orders.Producer(b.queue, nil).SendGroup(b.Context(), []order{{0}, {1}, {2}}, nil); err != nil {
			b.Fatal(err)
		}
		if older := b.run(5*time.Minute, b.kindsOf(emails.Handle(handler[email](b, nil), nil))); older.Outcomes[listener.Poisoned] != 0 || len(b.handled) != 0 {
			b.Errorf("a worker that does not know the kind handled %v, and says %+v", b.handled, older)
		}
		time.Sleep(10 * time.Minute)
		var ran []int
		begin, own := time.Now(), &kinds.Options{
			MaxAttempts: 3, Timeout: time.Second, RetryDelay: func(attempt int, _ error) time.Duration { return time.Duration(attempt) * time.Minute },
		}
		state := b.run(time.Hour, b.kindsOf(orders.Handle(func(ctx context.Context, m *listener.Message[order]) error {
			ran = append(ran, m.Body.Total*1000+int(time.Since(begin).Minutes()))
			if m.MaxAttempts != 3 {
				b.Errorf("got %d attempts", m.MaxAttempts)
			}
			if m.Body.Total == 1 {
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), listener.ErrTimeout) {
					b.Errorf("it ended because of %v", context.Cause(ctx))
				}
				return ctx.Err()
			}
			return nil
		}, own)))
		if !slices.Equal(ran, []int{0, 1000, 2000, 1001, 1003}) || state.Outcomes[listener.Poisoned] != 1 || b.depth() != 0 {
			b.Errorf("ran %v, and says %+v", ran, state)
		}
	})
}

// In an outage of its kind a group waits as a job does.
func TestAGroupIsHeldBackInAnOutageOfItsKind(t *testing.T) {
	bubble(t, func(b *bundle) {
		for i := range 100 {
			if _, err := orders.Producer(b.queue, nil).SendGroup(b.Context(), []order{{i}, {i}}, nil); err != nil {
				b.Fatal(err)
			}
		}
		send(b, emails, email{"ann@example.org"})
		state := b.run(30*time.Minute, b.kindsOf(orders.Handle(failsFor[order](b, 5*time.Minute), nil), emails.Handle(handler[email](b, nil), nil)))
		if state.Outcomes[listener.Poisoned] != 0 || state.Outcomes[listener.Deleted] != 101 {
			b.Errorf("got %+v", state)
		}
	})
}
