package roles

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/examples/billing/shipping"
)

// M-05: two controllers that run by mistake record a batch once.
func TestTwoControllersRecordABatchOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		worker := w.start(Options{Roles: Initiator | Worker, Group: 10}, nil)
		first, second := w.start(Options{Roles: Controller}, slow()), w.start(Options{Roles: Controller}, slow())
		for i := range 20 {
			w.ship(w.submitter(), fmt.Sprintf("2026-11-%02d", i+1), generate(uint64(i), 200), 50)
		}
		w.settle()
		for _, p := range []*process{worker, first, second} {
			p.end()
		}
		w.check()
		for i, p := range []*process{first, second} {
			if p.Counts().Total().Messages == 0 {
				t.Errorf("controller %d got no message, so nothing was shown", i)
			}
		}
	})
}

// M-06: items that come again, together with the first ones and after the batch is reported, change nothing and leave nothing.
func TestItemsThatComeAgainChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		initiator := w.start(Options{Roles: Initiator, Group: 10}, nil)
		w.ship(w.submitter(), day1, generate(1, 100), 50)
		time.Sleep(10 * time.Second)
		initiator.end()
		work := w.queue(WorkQueue)
		copies, err := work.Peek(t.Context(), 32)
		if err != nil || len(copies) != 10 {
			t.Fatalf("got %d items and error %v, want 10", len(copies), err)
		}
		again := func() {
			for _, m := range copies {
				if _, err := work.Enqueue(t.Context(), m.Text, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		again()
		one, two := w.start(Options{Roles: Worker}, nil), w.start(Options{Roles: Worker | Controller}, nil)
		w.settle()
		w.check()
		again()
		w.settle()
		one.end()
		two.end()
		w.check()
	})
}

// A batch that is sent again is answered with its state, and is not billed twice.
func TestABatchSentAgainIsNotBilledTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(Options{Roles: All, Group: 10}, nil)
		all := generate(1, 100)
		w.ship(p.System, day1, all, 50)
		if reported, err := p.Reported(t.Context(), day1); err != nil || reported {
			t.Errorf("reported: got %v and error %v, want false", reported, err)
		}
		w.settle()
		if reported, err := p.Reported(t.Context(), day1); err != nil || !reported {
			t.Errorf("reported: got %v and error %v, want true", reported, err)
		}
		w.ship(p.System, day1, all, 50) // the whole batch, pieces and all
		for range 3 {                   // and the message alone
			if err := p.Submit(t.Context(), day1); err != nil {
				t.Fatal(err)
			}
		}
		server := shipping.NewServer(w.store, func(context.Context, shipping.Manifest) error { return nil }, &shipping.ServerOptions{Reported: p.Reported})
		if status := w.call(server, http.MethodGet, "/batches/"+day1, nil); !strings.Contains(status, `"reported"`) {
			t.Errorf("status: got %s, want that the batch is reported", status)
		}
		w.settle()
		p.end()
		w.check()
		if w.books.refused > 0 {
			t.Errorf("the batch was recorded %d more times", w.books.refused)
		}
		if n := strings.Count(p.log.String(), "was sent again"); n != 3 {
			t.Errorf("the log says %d times that a batch was sent again, want 3", n)
		}
	})
}

// A store that retries by itself may say that an end exists which it has just stored.
func TestALostAnswerOfTheEndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.store = &repeatingStore{w.store}
		reported := 0
		p := w.start(Options{Roles: All, Group: 10, Reported: func(books.Batch) { reported++ }}, nil)
		w.ship(p.System, day1, generate(1, 50), 50)
		w.settle()
		p.end()
		w.check()
		if reported != 1 {
			t.Errorf("Reported was called %d times, want 1", reported)
		}
	})
}

// repeatingStore sends every Create of an end twice.
type repeatingStore struct{ blob.Store }

func (s *repeatingStore) Create(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	err := s.Store.Create(ctx, ref, r, o)
	if strings.HasSuffix(ref.Name, "/end") && err == nil {
		return blob.ErrExists
	}
	return err
}

// Of two processes that have the same message, one may report the batch and delete its blobs under the hands of the other, which
// then leaves nothing behind and reports no failure.
func TestABatchThatIsReportedMeanwhileIsNoFailure(t *testing.T) {
	for _, at := range []string{"billing-plans/" + day1 + ".json", partsContainer + "/" + day1 + "/000000"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.ship(w.submitter(), day1, generate(1, 50), 25)
			slower := &overtakenStore{Store: w.store, at: at, t: t}
			w.store = slower
			p := w.start(Options{Roles: All, Group: 10}, nil)
			w.settle()
			p.end()
			w.store = slower.Store
			w.checkLeft()
			if log := p.log.String(); !slower.done || strings.Contains(log, "WARN") || strings.Contains(log, "ERROR") {
				t.Errorf("overtaken: %v; the log has failures:\n%s", slower.done, log)
			}
		})
	}
}

// overtakenStore is the store of a process that another one overtakes when it comes to a blob.
type overtakenStore struct {
	blob.Store
	at   string
	t    *testing.T
	done bool
}

func (s *overtakenStore) overtake(ref blob.Ref) {
	if ref.Container+"/"+ref.Name != s.at || s.done {
		return
	}
	s.done = true
	b, err := newBatches(s.Store)
	if err == nil {
		_, err = b.parts.Once(s.t.Context(), day1, func(context.Context) ([]byte, error) { return []byte(`{"pieces":2}`), nil })
	}
	if err == nil {
		err = b.clean(s.t.Context(), day1, end{Pieces: 2})
	}
	if err != nil {
		s.t.Error(err)
	}
}

func (s *overtakenStore) Create(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	if ref.Container != partsContainer {
		s.overtake(ref)
	}
	return s.Store.Create(ctx, ref, r, o)
}

func (s *overtakenStore) Open(ctx context.Context, ref blob.Ref) (*blob.Reader, error) {
	s.overtake(ref)
	return s.Store.Open(ctx, ref)
}
