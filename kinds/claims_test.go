package kinds_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/codec/claimcheck"
	"github.com/millrace/millrace/kinds"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
)

// openCountingStore counts opens.
type openCountingStore struct {
	blob.Store
	opened atomic.Int64
}

func (s *openCountingStore) Open(ctx context.Context, ref blob.Ref) (*blob.Reader, error) {
	s.opened.Add(1)
	return s.Store.Open(ctx, ref)
}

// A job of a kind may be stored elsewhere. A worker that does not know the kind does not fetch its body.
func TestAKindWithAClaimIsOpenedByItsWorkerOnly(t *testing.T) {
	bubble(t, func(b *bundle) {
		store := &openCountingStore{Store: blob.Memory()}
		claims, err := claimcheck.New(store, "bodies", nil)
		if err != nil {
			b.Fatal(err)
		}
		large := email{strings.Repeat("x", 100_000)}
		if _, err := emails.Producer(b.queue, &producer.Options[email]{Claims: claims}).Send(b.Context(), large, nil); err != nil {
			b.Fatal(err)
		}
		b.options.Claims = claims
		older := b.run(5*time.Minute, b.kindsOf(orders.Handle(handler[order](b, nil), nil)))
		if older.Outcomes[listener.Snoozed] == 0 || older.Outcomes[listener.Poisoned] != 0 || store.opened.Load() != 0 {
			b.Errorf("opened %d bodies of an unknown kind, and says %+v", store.opened.Load(), older)
		}
		st := b.run(10*time.Minute, b.kindsOf(emails.Handle(handler[email](b, nil), &kinds.Options{Concurrency: 1})))
		if got := b.handled["email"]; len(got) != 1 || got[0].body != large || got[0].attempt != 1 || store.opened.Load() != 1 || b.depth() != 0 {
			b.Errorf("handled %d, opened %d, %d left", len(got), store.opened.Load(), b.depth())
		}
		if st.Running != 0 {
			b.Errorf("got %d handlers running at the end, want none", st.Running)
		}
	})
}
