package claimcheck_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/codec/claimcheck"
	"github.com/millrace/millrace/producer"
)

// An interceptor makes two jobs of one. Each has a body of its own, because that of the first becomes a
// tombstone when the first is done.
func TestTwoJobsOfOneSendHaveABodyEach(t *testing.T) {
	for name, change := range map[string]func(*producer.Sending){
		"another id":   func(s *producer.Sending) { s.JobID = "second" },
		"another kind": func(s *producer.Sending) { s.Kind = "second" },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bundle) {
				both := func(ctx context.Context, s *producer.Sending, next func(context.Context) error) error {
					if err := next(ctx); err != nil {
						return err
					}
					change(s)
					return next(ctx)
				}
				p := producer.New(b.queue, &producer.Options[job]{Claims: b.claims, Interceptors: []producer.Interceptor{both}})
				if _, err := p.Send(b.Context(), job{"both", large}, nil); err != nil {
					b.Fatal(err)
				}
				b.wantStored(2, 0)
				texts := b.texts(b.queue)
				if len(texts) != 2 {
					b.Fatalf("got %d messages, want 2", len(texts))
				}
				if name == "another kind" {
					return // a listener without kinds leaves it to others
				}
				if one, two := b.head(texts[0]).Claim, b.head(texts[1]).Claim; one == two {
					b.Errorf("both have the claim %s", one)
				}
				h := &handled{}
				b.run(options(b.claims), h.handle, time.Minute)
				if len(h.jobs) != 2 {
					b.Errorf("got %d runs, want 2", len(h.jobs))
				}
			})
		})
	}
}

// A store that is away, denies access or does not respond would fail each large job of an endless sequence. Small
// ones that were under way are sent.
func TestAnOutageOfTheStoreEndsSendAll(t *testing.T) {
	for name, failure := range map[string]error{"away": blob.ErrUnavailable, "denied": blob.ErrUnauthorized, "hangs": nil} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bundle) {
				claims := b.newClaims(&outOfOrder{b.blobs, failure})
				p := producer.New(b.queue, &producer.Options[job]{Claims: claims, Timeout: 10 * time.Second})
				jobs := func(yield func(job) bool) {
					for i := 0; ; i++ {
						if i == 10_000 {
							b.Error("SendAll does not end")
							return
						}
						j := job{Name: fmt.Sprint(i)}
						if i%2 == 1 {
							j.Text = large
						}
						if !yield(j) {
							return
						}
					}
				}
				results, err := p.SendAllSeq(b.Context(), jobs, &producer.SendAllOptions[job]{Concurrency: 4})
				if err == nil || !strings.Contains(err.Error(), "no further job was taken after") || failure != nil && !errors.Is(err, failure) {
					b.Errorf("got error %v, want that of the store, and that no further job was taken", err)
				}
				accepted := slices.DeleteFunc(slices.Clone(results), func(r producer.Result) bool { return r.Err != nil })
				if int64(len(accepted)) != b.depth(b.queue) {
					b.Errorf("got %d accepted and %d in the queue", len(accepted), b.depth(b.queue))
				}
			})
		})
	}
}

// A body that is too large for the store stops no other.
func TestABodyOverMaxBodyStopsNoOther(t *testing.T) {
	bubble(t, func(b *bundle) {
		claims, err := claimcheck.New(b.blobs, container, &claimcheck.Options{Limit: limit, MaxBody: 5000})
		if err != nil {
			b.Fatal(err)
		}
		jobs := []job{{"0", large}, {"1", strings.Repeat("x", 5000)}, {"2", large}}
		results, err := producer.New(b.queue, &producer.Options[job]{Claims: claims}).
			SendAll(b.Context(), jobs, &producer.SendAllOptions[job]{Concurrency: 1})
		if len(results) != 3 || results[0].Err != nil || results[1].Err == nil || results[2].Err != nil || !strings.Contains(err.Error(), "MaxBody is 5000") {
			b.Errorf("got %+v, %v; want only the second to fail", results, err)
		}
	})
}

// outOfOrder is a store whose puts fail, or hang if there is no error.
type outOfOrder struct {
	blob.Store
	err error
}

func (s *outOfOrder) Put(ctx context.Context, ref blob.Ref, _ io.Reader, _ *blob.PutOptions) error {
	if s.err != nil {
		return &blob.Error{Op: "put", Ref: ref, Kind: s.err}
	}
	<-ctx.Done()
	return context.Cause(ctx)
}
