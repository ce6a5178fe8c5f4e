package claimcheck_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/killtest"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// sendTwice sends one job in two messages, the first of which expires after its TTL.
func (b *bundle) sendTwice(j job, ttl time.Duration) {
	b.Helper()
	twice := func(ctx context.Context, s *producer.Sending, next func(context.Context) error) error {
		s.TTL = ttl
		if err := next(ctx); err != nil {
			return err
		}
		s.TTL, s.Delay = 0, 5*time.Second
		return next(ctx)
	}
	p := producer.New(b.queue, &producer.Options[job]{Claims: b.claims, Interceptors: []producer.Interceptor{twice}})
	if _, err := p.Send(b.Context(), j, &producer.SendOptions{JobID: j.Name}); err != nil {
		b.Fatal(err)
	}
}

// The first of two messages of a job saves its progress, and expires after its worker died. The second one
// has the body as it was sent: the job is not done, and must be handled.
func TestADuplicateIsNoLossWhenTheMessageThatSavedExpires(t *testing.T) {
	for _, to := range []string{large + "!", "small"} {
		bubble(t, func(b *bundle) {
			b.sendTwice(job{"twice", large}, 20*time.Second)
			inner := b.queue
			k := &killtest.Killer{Kind: "handler", Nth: 1}
			work := *b
			work.queue = &killtest.Queue{Queue: inner, Killer: k}
			work.run(options(b.claims), func(ctx context.Context, m *listener.Message[job]) error {
				if err := m.Save(ctx, job{m.Body.Name, to}); err != nil {
					return err
				}
				b.wantStored(1+len(to)/limit/10, 0)
				return k.Step("handler", func() error { return nil }) // dies here
			}, 3*time.Second)
			if !k.Dead() {
				b.Fatal("the worker did not die")
			}
			time.Sleep(time.Minute) // the message that saved expires
			h := &handled{}
			state := b.run(options(b.claims), h.handle, time.Minute)
			if !slices.Equal(h.jobs, []job{{"twice", large}}) || state.Outcomes[listener.Duplicate] != 0 {
				b.Errorf("got runs of %d bodies, state %+v; want one run with the body as it was sent", len(h.jobs), state)
			}
		})
	}
}

// A body that was saved and replaced in one delivery is in no other message: it is given up at once. The one with
// which the message came is given up when the job is done.
func TestOfManySavesNoBodyStays(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(job{"saves", large})
		b.run(options(b.claims), func(ctx context.Context, m *listener.Message[job]) error {
			for i := range 5 {
				if err := m.Save(ctx, job{m.Body.Name, m.Body.Text + "!"}); err != nil {
					return err
				}
				b.wantStored(2, i)
			}
			return nil
		}, 3*time.Second)
		b.wantStored(0, 6)
	})
}

// A body whose message was deleted and that cannot become a tombstone is an orphan. The error says whose it is and
// where.
func TestABodyThatCannotBeGivenUpIsReported(t *testing.T) {
	bubble(t, func(b *bundle) {
		sent := b.send(job{"done", large})
		claim := b.head(b.texts(b.queue)[0]).Claim
		down := errors.New("out of order")
		b.store.before = func(op string) error {
			if op == "tombstone" {
				return down
			}
			return nil
		}
		o, log := options(b.claims), &lines{}
		o.Logger = log.logger()
		var failures []error
		o.OnError = func(err error) { failures = append(failures, err) }
		b.run(o, (&handled{}).handle, 3*time.Second)
		b.wantStored(1, 0)
		e := (*listener.ClaimsError)(nil)
		if len(failures) != 1 || !errors.As(failures[0], &e) || e.ID != sent.ID || e.Claim != claim || e.Queue != (queue.Name{Account: "test", Queue: "jobs"}) || !errors.Is(e, down) {
			b.Fatalf("got errors %v, want one ClaimsError of the message and its claim", failures)
		}
		log.want(b, `level=WARN msg="body stays stored" queue=test/jobs message=`+string(sent.ID)+` job=done attempt=1 claim=`)
		log.without(b, "renewal")
	})
}
