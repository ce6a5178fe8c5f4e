package listener_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/codec/claimcheck"
	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
)

// countingStore counts calls. Each is one request of azureblob, whose own test counts them.
type countingStore struct {
	blob.Store
	calls atomic.Int64
}

func (s *countingStore) Put(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	s.calls.Add(1)
	return s.Store.Put(ctx, ref, r, o)
}

func (s *countingStore) Open(ctx context.Context, ref blob.Ref) (*blob.Reader, error) {
	s.calls.Add(1)
	return s.Store.Open(ctx, ref)
}

func (s *countingStore) Delete(ctx context.Context, ref blob.Ref) error {
	s.calls.Add(1)
	return s.Store.Delete(ctx, ref)
}

func (s *countingStore) List(ctx context.Context, container, prefix string) iter.Seq2[blob.Info, error] {
	s.calls.Add(1)
	return s.Store.List(ctx, container, prefix)
}

// record is one of a million.
type record struct {
	Number int
	Text   string
}

// O-06: a million records in groups of 1,000, each in a blob, cost two requests to the queue for each
// group and a share of a dequeue, and four to the blob store. The server counts the former.
func TestAMillionRecordsInGroups(t *testing.T) {
	const size = 1000
	groups := 1000
	switch {
	case testing.Short():
		groups = 20
	case raced || !*whole:
		groups = 100
	}
	synctest.Test(t, func(t *testing.T) {
		// As over a network: requests take time, so that the listener waits for full batches.
		c := newCloud(t, func(server http.RoundTripper) http.RoundTripper { return latentTransport{server} })
		store := &countingStore{Store: blob.Memory()}
		claims, err := claimcheck.New(store, "records", &claimcheck.Options{Retention: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		p := producer.New(c.queue, &producer.Options[record]{Claims: claims})
		jobs := make([]record, size)
		for g := range groups {
			for i := range jobs {
				number := g*size + i
				jobs[i] = record{number, fmt.Sprintf("the text of record %d, which is not long", number)}
			}
			if _, err := p.SendGroup(t.Context(), jobs, nil); err != nil {
				t.Fatal(err)
			}
		}
		handled := make([]atomic.Int32, groups*size)
		var total atomic.Int64
		done := make(chan struct{})
		l := listener.New(c.queue, listener.EachItem(func(_ context.Context, m *listener.Message[record]) error {
			if m.Item%100 == 0 {
				time.Sleep(time.Second)
			}
			handled[m.Body.Number].Add(1)
			if total.Add(1) == int64(groups*size) {
				close(done)
			}
			return nil
		}, 8), &listener.Options[record]{Concurrency: 512, Claims: claims, Logger: dayOptions().Logger})
		finish := start(t, l)
		<-done
		finish()
		time.Sleep(2 * time.Hour)
		if _, err := claims.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range handled {
			if n := handled[i].Load(); n != 1 {
				t.Fatalf("record %d was handled %d times", i, n)
			}
		}
		counts := c.server.Counts()
		t.Logf("%d groups of %d: %d blob calls, and\n%v", groups, size, store.calls.Load(), counts)
		if n := counts.Requests() - counts.EmptyGets; n > int64(groups)*21/10 {
			t.Errorf("the queue had %d requests, empty polls apart; want at most %d", n, groups*21/10)
		}
		if n := store.calls.Load(); n > int64(groups)*41/10 {
			t.Errorf("the blob store had %d calls; want at most %d", n, groups*41/10)
		}
		if counts.Operations[emulator.UpdateMessage] != 0 {
			t.Error("messages were updated")
		}
		if p, err := c.direct.Properties(t.Context()); err != nil || p.Depth != 0 {
			t.Errorf("%d messages are left, %v", p.Depth, err)
		}
	})
}

// latentTransport takes five milliseconds over a request.
type latentTransport struct{ http.RoundTripper }

func (l latentTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(5 * time.Millisecond)
	return l.RoundTripper.RoundTrip(r)
}
