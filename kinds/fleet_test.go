package kinds_test

import (
	"context"
	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/kinds"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/listener"
)

// B-19: of nine workers one knows a kind. Its jobs come often enough, and to another worker each time, so that 95 % of them
// reach it within 2 min.
func TestOneWorkerOfNineFindsItsKind(t *testing.T) {
	bubble(t, func(b *bundle) {
		const jobs, within = 200, 2 * time.Minute
		b.options.Idle = listener.Idle{}
		sent := make([]time.Time, jobs)
		found, soon := 0, 0
		var mu sync.Mutex
		knows := emails.Handle(func(_ context.Context, m *listener.Message[email]) error {
			mu.Lock()
			defer mu.Unlock()
			if found++; time.Since(m.Inserted) <= within {
				soon++
			}
			return nil
		}, nil)
		workers := []runner{b.kindsOf(knows)}
		for range 8 {
			workers = append(workers, b.kindsOf(orders.Handle(handler[order](b, nil), nil)))
		}
		go func() {
			for i := range jobs {
				sent[i] = time.Now()
				send(b, emails, email{})
				time.Sleep(1700 * time.Millisecond)
			}
		}()
		b.run(15*time.Minute, workers...)
		t.Logf("%d of %d in time, %d found", soon, jobs, found)
		if soon < jobs*95/100 || b.depth()+int64(found) != jobs {
			t.Errorf("got %d of %d jobs within %v, %d in all; %d are left", soon, jobs, within, found, b.depth())
		}
	})
}

// A kind, a body or a claim that nobody knows costs at most 150 requests on the first day, and 60 on each
// later one. A message that was sent with a delay begins when it first comes.
func TestWhatNobodyKnowsCostsLittle(t *testing.T) {
	newer := codec.ErrNewer
	for name, c := range map[string]struct {
		delay time.Duration
		send  func(b *bundle, o *producer.SendOptions) error
		kind  func(b *bundle) listener.Kind
	}{
		"kind":    {0, sendEmail, func(b *bundle) listener.Kind { return orders.Handle(handler[order](b, nil), nil) }},
		"delayed": {30 * time.Hour, sendEmail, func(b *bundle) listener.Kind { return orders.Handle(handler[order](b, nil), nil) }},
		"body": {0, sendEmail, func(b *bundle) listener.Kind {
			return kinds.Kind[email]{Name: "email", Codec: newerCodec{newer}}.Handle(handler[email](b, nil), nil)
		}},
		"envelope": {0, sendNewer, func(b *bundle) listener.Kind { return orders.Handle(handler[order](b, nil), nil) }},
		"item": {0, sendItems, func(b *bundle) listener.Kind {
			return kinds.Kind[email]{Name: "email", Codec: newerCodec{newer}}.Handle(handler[email](b, nil), nil)
		}},
	} {
		bubble(t, func(b *bundle) {
			if err := c.send(b, &producer.SendOptions{Delay: c.delay}); err != nil {
				b.Fatal(err)
			}
			b.options.Idle = listener.Idle{Max: time.Minute}
			worker := b.kindsOf(c.kind(b))
			first := int64(0)
			time.AfterFunc(c.delay+24*time.Hour, func() { first = worker.State().Snoozed })
			second := b.run(c.delay+48*time.Hour, worker).Snoozed - first
			// Each delivery is a dequeue and an update.
			t.Logf("%s: %d requests on the first day, %d on the next one", name, 2*first, 2*second)
			if first < 50 || first > 75 || second < 20 || second > 30 || b.depth() != 1 {
				t.Errorf("%s: %d requests on the first day, %d on the next one; %d messages are left", name, 2*first, 2*second, b.depth())
			}
		})
	}
}

func sendEmail(b *bundle, o *producer.SendOptions) error {
	_, err := emails.Producer(b.queue, nil).Send(b.Context(), email{"ann@example.org"}, o)
	return err
}

func sendItems(b *bundle, o *producer.SendOptions) error {
	_, err := emails.Producer(b.queue, nil).SendGroup(b.Context(), []email{{"ann@example.org"}, {"bob@example.org"}}, o)
	return err
}

func sendNewer(b *bundle, _ *producer.SendOptions) error {
	_, err := b.queue.Enqueue(b.Context(), "millrace/3?id=7\n{}", nil)
	return err
}

// newerCodec decodes nothing.
type newerCodec struct{ err error }

func (newerCodec) ContentType() string            { return "application/json" }
func (newerCodec) Encode(email) ([]byte, error)   { return []byte("{}"), nil }
func (c newerCodec) Decode([]byte) (email, error) { return email{}, c.err }

// Workers that cannot read a message of the largest size leave it as it is, however often it comes, and
// the one that can handles it.
func TestAFullMessageIsNotPoisonedByWorkersThatCannotReadIt(t *testing.T) {
	bubble(t, func(b *bundle) {
		text := "millrace/2?at=946684800000&kd=email\n{\"To\":\""
		text += strings.Repeat("x", queue.MaxText-len(text)-2) + `"}`
		if _, err := b.queue.Enqueue(b.Context(), text, nil); err != nil {
			b.Fatal(err)
		}
		state := b.run(time.Hour, b.kindsOf(orders.Handle(handler[order](b, nil), nil)))
		if state.Snoozed < 20 || state.Poisoned != 0 {
			b.Errorf("without a worker that knows it: %+v", state)
		}
		state = b.run(3*time.Hour, b.kindsOf(emails.Handle(handler[email](b, nil), nil)))
		if state.Succeeded != 1 || state.Poisoned != 0 {
			b.Errorf("with one that does: %+v", state)
		}
	})
}
