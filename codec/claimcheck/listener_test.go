package claimcheck_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// handled is a handler that remembers what it got.
type handled struct {
	mu   sync.Mutex
	jobs []job // guarded by mu
	err  error // what it returns
}

func (h *handled) handle(_ context.Context, m *listener.Message[job]) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.jobs = append(h.jobs, m.Body)
	return h.err
}

// O-01, O-04: producer and listener agree where the body is, and the handler sees none of it.
func TestALargeBodyReachesTheHandlerAndBecomesATombstone(t *testing.T) {
	bubble(t, func(b *bundle) {
		want := job{"large", large}
		b.send(want)
		text := b.texts(b.queue)[0]
		if b.head(text).Claim == "" || len(text) > 400 {
			b.Errorf("got text %.500q, want a claim without a body", text)
		}
		b.wantStored(1, 0)
		h := &handled{}
		state := b.run(options(b.claims), h.handle, time.Minute)
		if !slices.Equal(h.jobs, []job{want}) || state.Outcomes[listener.Deleted] != 1 || state.Errors != 0 {
			b.Errorf("got %d jobs and state %+v, want the one that was sent", len(h.jobs), state)
		}
		b.wantStored(0, 1)
	})
}

// O-05.
func TestASmallBodyStaysInItsMessage(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(job{"small", ""})
		h := &handled{}
		b.run(options(b.claims), h.handle, time.Minute)
		if len(h.jobs) != 1 || len(b.store.calls) != 0 {
			b.Errorf("got %d jobs and requests %v to the store, want one job and no request", len(h.jobs), b.store.calls)
		}
	})
}

// O-05: a body under the limit that does not fit into a message, because XML escapes its characters.
func TestABodyThatDoesNotFitIsStored(t *testing.T) {
	bubble(t, func(b *bundle) {
		c := b.claims
		ctx := b.Context()
		p := producer.New(b.queue, &producer.Options[[]byte]{Codec: codec.Bytes(), Claims: wide{c}})
		for range 2 {
			if _, err := p.Send(ctx, make([]byte, 50<<10), nil); err != nil { // 68,268 bytes in Base64
				b.Fatal(err)
			}
		}
		b.wantStored(2, 0)
	})
}

// wide are claims with a limit that nothing exceeds.
type wide struct{ listener.Claims }

func (wide) Limit() int { return 1 << 30 }

// What is refused anyway is not stored first.
func TestNothingIsStoredForWhatCannotBeSent(t *testing.T) {
	bubble(t, func(b *bundle) {
		p := producer.New(b.queue, &producer.Options[job]{Claims: b.claims})
		if _, err := p.Send(b.Context(), job{Text: large}, &producer.SendOptions{TTL: -5}); !errors.Is(err, queue.ErrInvalid) {
			b.Errorf("got error %v, want ErrInvalid", err)
		}
		p = producer.New(b.queue, &producer.Options[job]{Claims: b.claims, Format: codec.Plain})
		if _, err := p.Send(b.Context(), job{Text: large}, nil); err == nil {
			b.Error("without an envelope: got no error, want one")
		}
		b.wantStored(0, 0)
		b.store.before = func(string) error { return blob.ErrUnavailable }
		p = producer.New(b.queue, &producer.Options[job]{Claims: b.claims})
		if _, err := p.Send(b.Context(), job{Text: large}, nil); !errors.Is(err, blob.ErrUnavailable) {
			b.Errorf("got error %v, want ErrUnavailable", err)
		}
		if n := b.depth(b.queue); n != 0 {
			b.Errorf("got %d messages, want none without its body", n)
		}
	})
}

// An interceptor may call next again; the body is stored once.
func TestASendThatIsRepeatedStoresItsBodyOnce(t *testing.T) {
	bubble(t, func(b *bundle) {
		twice := func(ctx context.Context, s *producer.Sending, next func(context.Context) error) error {
			if err := next(ctx); err != nil {
				return err
			}
			s.Delay = 30 * time.Second // comes when the first is settled
			return next(ctx)
		}
		p := producer.New(b.queue, &producer.Options[job]{Claims: b.claims, Interceptors: []producer.Interceptor{twice}})
		if _, err := p.Send(b.Context(), job{"twice", large}, nil); err != nil {
			b.Fatal(err)
		}
		b.wantStored(1, 0)
		for _, text := range b.texts(b.queue) {
			if len(text) > 400 {
				b.Errorf("got text %.500q, want a claim without a body", text)
			}
		}
		h := &handled{}
		var failures []error
		o := options(b.claims)
		var mu sync.Mutex
		o.OnError = func(err error) {
			mu.Lock()
			defer mu.Unlock()
			failures = append(failures, err)
		}
		state := b.run(o, h.handle, time.Minute)
		if len(h.jobs) != 1 || state.Outcomes[listener.Deleted] != 1 || state.Outcomes[listener.Duplicate] != 1 {
			b.Errorf("got %d runs, state %+v; want one run and one duplicate", len(h.jobs), state)
		}
		if len(failures) != 1 || !errors.Is(failures[0], envelope.ErrClaimSettled) {
			b.Errorf("got errors %v, want one ErrClaimSettled", failures)
		}
	})
}

// The lease is held and renewed during the download: nobody else gets the message.
func TestALeaseIsRenewedDuringTheDownload(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.store.openSlow = time.Minute // six visibilities
		b.send(job{"slow", large})
		h := &handled{}
		state := b.run(options(b.claims), h.handle, 2*time.Minute)
		if len(h.jobs) != 1 || b.store.count("open") != 1 || state.Renewed < 5 {
			b.Errorf("got %d runs, %d downloads, %d renewals; want one run of one download, renewed", len(h.jobs), b.store.count("open"), state.Renewed)
		}
		b.wantStored(0, 1)
	})
}

// The time-out of the handler begins after the download.
func TestTheTimeoutBeginsAfterTheDownload(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.store.openSlow = 10 * time.Second
		b.send(job{"slow", large})
		o := options(b.claims)
		o.Lease.Visibility = listener.FixedVisibility(5 * time.Minute) // no renewal ends the handler
		o.Timeout = 5 * time.Second
		var took time.Duration
		b.run(o, func(ctx context.Context, _ *listener.Message[job]) error {
			begin := time.Now()
			<-ctx.Done()
			if took == 0 && errors.Is(context.Cause(ctx), listener.ErrTimeout) {
				took = time.Since(begin)
			}
			return nil
		}, 2*time.Minute)
		if took != o.Timeout {
			b.Errorf("got a time-out after %v, want %v", took, o.Timeout)
		}
	})
}

// A stop ends a download when the grace period is over; the message is given back without an
// attempt.
func TestAStopEndsTheDownload(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.store.openSlow = 4 * time.Minute
		b.send(job{"slow", large})
		h := &handled{}
		o := options(b.claims)
		o.Grace = 20 * time.Second
		state := b.run(o, h.handle, 10*time.Second)
		text := b.texts(b.queue)
		if len(h.jobs) != 0 || state.Outcomes[listener.Returned] != 1 || len(text) != 1 || b.head(text[0]).Attempts != 0 {
			b.Errorf("got %d runs, state %+v, texts %q; want the message given back", len(h.jobs), state, text)
		}
		b.wantStored(1, 0)
	})
}

// An outage of the store is no attempt, however long it lasts.
func TestABodyThatCannotBeReadForAWhileIsNoAttempt(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(job{"later", large})
		end := time.Now().Add(time.Hour)
		b.store.before = func(op string) error {
			if op == "open" && time.Now().Before(end) {
				return blob.ErrUnavailable
			}
			return nil
		}
		attempts := 0
		state := b.run(options(b.claims), func(_ context.Context, m *listener.Message[job]) error {
			attempts = m.Attempt
			return nil
		}, 2*time.Hour)
		if attempts != 1 || state.Outcomes[listener.Deleted] != 1 || state.Outcomes[listener.Poisoned] != 0 || state.Running != 0 {
			b.Errorf("got attempt %d, state %+v; want a success at the first attempt", attempts, state)
		}
		// One in 30 s, until the store counts as away after 16 of them, and then with growing delays.
		if n := b.store.count("open"); n < 20 || n > 30 {
			b.Errorf("got %d tries in an hour, want 20 to 30", n)
		}
	})
}

// A panic of the store is an outage too.
func TestAStoreThatPanicsIsContained(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(job{"later", large})
		b.store.before = func(op string) error {
			if op == "open" && b.store.count("open") == 1 || op == "tombstone" {
				panic("broken")
			}
			return nil
		}
		h := &handled{}
		state := b.run(options(b.claims), h.handle, time.Hour)
		if len(h.jobs) != 1 || state.Outcomes[listener.Snoozed] != 1 || state.Outcomes[listener.Deleted] != 1 {
			b.Errorf("got %d runs, state %+v; want a run after a snooze", len(h.jobs), state)
		}
		b.wantStored(1, 0) // an orphan
	})
}

// O-05.
func TestWhatCannotBeOpenedIsPoisonWithItsReason(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(job{"gone", large})
		for _, ref := range b.refs() {
			if err := b.blobs.Delete(b.Context(), ref); err != nil {
				b.Fatal(err)
			}
		}
		b.send(job{"invalid", large + "!"})
		for _, ref := range b.refs() {
			if err := b.blobs.Put(b.Context(), ref, strings.NewReader("another"), nil); err != nil {
				b.Fatal(err)
			}
		}
		h := &handled{}
		b.run(options(b.claims), h.handle, time.Minute)
		reasons := map[string]poison.Reason{}
		for _, text := range b.texts(b.queue.Sibling(poison.Suffix)) {
			r, err := poison.ParseRecord(text)
			if err != nil {
				b.Fatal(err)
			}
			reasons[r.Job] = r.Reason
			if r.Attempts != 0 {
				b.Errorf("%s: got %d attempts, want none", r.Job, r.Attempts)
			}
		}
		if len(h.jobs) != 0 || len(reasons) != 2 || reasons["gone"] != poison.ReasonBlobGone || reasons["invalid"] != poison.ReasonUndecodable {
			b.Errorf("got %d runs, reasons %v; want blobgone and undecodable", len(h.jobs), reasons)
		}
	})
}

// Workers without claims leave the message alone.
func TestAListenerWithoutClaimsLeavesThemToOthers(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(job{"large", large})
		h := &handled{}
		b.run(options(nil), h.handle, 10*time.Minute)
		if len(h.jobs) != 0 || b.depth(b.queue.Sibling(poison.Suffix)) != 0 {
			b.Errorf("got %d runs and %d poisoned, want neither", len(h.jobs), b.depth(b.queue.Sibling(poison.Suffix)))
		}
		b.run(options(b.claims), h.handle, 10*time.Minute)
		if len(h.jobs) != 1 {
			b.Errorf("got %d runs with claims, want 1", len(h.jobs))
		}
	})
}

// Retries resend the claim and not the body; the poison copy keeps the body, and so does the
// redrive.
func TestAPoisonCopyKeepsItsBodyAndARedriveItsClaim(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(job{"fails", large})
		claim := b.head(b.texts(b.queue)[0]).Claim
		broken := &handled{err: errors.New("broken")}
		state := b.run(options(b.claims), broken.handle, time.Minute)
		if len(broken.jobs) != 2 || state.Outcomes[listener.Poisoned] != 1 {
			b.Errorf("got %d runs, state %+v; want two and poison", len(broken.jobs), state)
		}
		b.wantStored(1, 0)
		if _, err := poison.Redrive(b.Context(), b.queue, nil); err != nil {
			b.Fatal(err)
		}
		if head := b.head(b.texts(b.queue)[0]); head.Claim != claim || head.Attempts != 0 {
			b.Errorf("redriven: got head %+v, want the claim %q", head, claim)
		}
		good := &handled{}
		b.run(options(b.claims), good.handle, time.Minute)
		if len(good.jobs) != 1 || good.jobs[0].Text != large {
			b.Errorf("got %d runs after the redrive, want one with the body", len(good.jobs))
		}
		b.wantStored(0, 1)
	})
}

// A saved body is stored anew. The one with which the message came stays, because a duplicate of the
// message may need it, and is an orphan when the delivery has failed.
func TestSaveReplacesTheBody(t *testing.T) {
	small, other := "small", large+"!"
	for _, one := range []struct {
		name     string
		from, to string
		bodies   int // while the handler runs
		orphans  int // in the end
	}{
		{"large by large", large, other, 2, 1},
		{"large by small", large, small, 1, 1},
		{"small by large", small, large, 1, 0},
		{"large by the same", large, large, 1, 0},
	} {
		t.Run(one.name, func(t *testing.T) {
			bubble(t, func(b *bundle) {
				b.send(job{"save", one.from})
				failed := false
				var got []string
				b.run(options(b.claims), func(ctx context.Context, m *listener.Message[job]) error {
					got = append(got, m.Body.Text)
					if failed {
						return nil
					}
					failed = true
					if err := m.Save(ctx, job{m.Body.Name, one.to}); err != nil {
						b.Error(err)
					}
					b.wantStored(one.bodies, 0)
					return errors.New("broken")
				}, time.Minute)
				if !slices.Equal(got, []string{one.from, one.to}) {
					b.Errorf("got bodies of %d bytes, want the saved one at the second attempt", len(got))
				}
				b.wantStored(one.orphans, one.bodies-one.orphans)
			})
		})
	}
}

// After an update whose outcome is unknown both bodies stay until it is certain that neither is
// needed.
func TestASaveOfUnknownOutcomeKeepsBothBodies(t *testing.T) {
	for _, succeeds := range []bool{true, false} {
		for _, applied := range []bool{true, false} {
			bubble(t, func(b *bundle) {
				b.send(job{"save", large})
				q := b.queue
				lossy := &lossyQueue{Queue: q, applied: applied}
				b.queue = lossy
				first := true
				var got []string
				b.run(options(b.claims), func(ctx context.Context, m *listener.Message[job]) error {
					got = append(got, m.Body.Text)
					if !first {
						return nil
					}
					first = false
					lossy.lose = true
					if err := m.Save(ctx, job{m.Body.Name, large + "!"}); !errors.Is(err, queue.ErrOutcomeUnknown) {
						b.Errorf("got error %v, want ErrOutcomeUnknown", err)
					}
					b.wantStored(2, 0)
					if !succeeds {
						return errors.New("broken")
					}
					return nil
				}, 10*time.Minute)
				if waiting, _ := b.stored(); b.depth(q) != 0 || waiting > 1 || succeeds && !applied && waiting != 0 {
					b.Errorf("succeeds %v, applied %v: got %d messages and %d bodies left, runs with %d bodies", succeeds, applied, b.depth(q), waiting, len(got))
				}
				if n := b.depth(q.Sibling(poison.Suffix)); n != 0 {
					b.Errorf("succeeds %v, applied %v: got %d poisoned, want none", succeeds, applied, n)
				}
			})
		}
	}
}

// lossyQueue loses the response to one update.
type lossyQueue struct {
	queue.Queue
	lose    bool // the next update
	applied bool // whether it takes effect
}

func (q *lossyQueue) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	if !q.lose {
		return q.Queue.Update(ctx, l, text, visibility)
	}
	q.lose = false
	if q.applied {
		if _, err := q.Queue.Update(ctx, l, text, visibility); err != nil {
			return queue.Lease{}, err
		}
	}
	return queue.Lease{}, &queue.Error{Op: "update", Kind: queue.ErrOutcomeUnknown}
}

// A delete without a response is repeated; the body goes only if the deletion is certain.
func TestABodyStaysWhenItsDeleteIsNotCertain(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(job{"kept", large})
		q := b.queue
		b.queue = deaf{q}
		h := &handled{}
		state := b.run(options(b.claims), h.handle, 5*time.Second)
		if len(h.jobs) == 0 || state.Outcomes[listener.Unsettled] == 0 {
			b.Errorf("got %d runs, state %+v; want a settlement that failed", len(h.jobs), state)
		}
		b.wantStored(1, 0)
	})
}

// deaf is a queue whose deletes do nothing and fail.
type deaf struct{ queue.Queue }

func (deaf) Delete(context.Context, queue.Lease) error {
	return &queue.Error{Op: "delete", Kind: queue.ErrOutcomeUnknown}
}
