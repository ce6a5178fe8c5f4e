package kinds_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/kinds"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

const day = 24 * time.Hour

// B-19: one worker of nine knows a kind, and 95 % of the jobs of that kind reach it within 2 min, even if they were sent with a
// delay and are old when they become visible.
func TestTheOneWorkerOfNineThatKnowsAKindFindsItsJobs(t *testing.T) {
	const (
		jobs   = 1000
		within = 2 * time.Minute
		apart  = 1700 * time.Millisecond
	)
	for _, delay := range []time.Duration{0, day} {
		bubble(t, func(b *bundle) {
			p, start := emails.Producer(b.queue, nil), time.Now().Add(delay)
			for i := range jobs {
				if _, err := p.Send(b.Context(), email{fmt.Sprint(i)}, &producer.SendOptions{Delay: delay + time.Duration(i)*apart}); err != nil {
					b.Fatal(err)
				}
			}
			time.Sleep(delay)
			var mu sync.Mutex
			soon := 0
			workers := []runner{b.kindsOf(emails.Handle(func(_ context.Context, m *listener.Message[email]) error {
				mu.Lock()
				defer mu.Unlock()
				var i int
				if _, err := fmt.Sscan(m.Body.To, &i); err != nil || m.Attempt != 1 {
					b.Errorf("got job %q, attempt %d", m.Body.To, m.Attempt)
				}
				if time.Since(start.Add(time.Duration(i)*apart)) <= within {
					soon++
				}
				return nil
			}, nil))}
			for range 8 {
				workers = append(workers, b.kindsOf(orders.Handle(handler[order](b, nil), nil)))
			}
			state := b.run(jobs*apart+10*time.Minute, workers...)
			if soon < jobs*95/100 || state.Outcomes[listener.Deleted]+b.depth() != jobs || len(b.records()) != 0 {
				b.Errorf("delay %v: got %d of %d jobs within %v, %d in all; want at least %d within, and the others in the queue", delay, soon, jobs, within, state.Outcomes[listener.Deleted], jobs*95/100)
			}
		})
	}
}

// eager counts the requests for its only message, and wakes the worker as soon as that is visible.
type eager struct {
	queue.Queue
	wake func()

	first    time.Time             // the first delivery
	requests map[int]int           // by the day after that: dequeues with the message, and updates
	waits    map[time.Duration]int // how often it was hidden for so long
	longest  time.Duration         // within 2 min of the first delivery
}

func (q *eager) count() { q.requests[int(time.Since(q.first)/day)+1]++ }

func (q *eager) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	batch, err := q.Queue.Dequeue(ctx, n, visibility)
	if len(batch) > 0 {
		if q.first.IsZero() {
			q.first = time.Now()
		}
		q.count()
	}
	return batch, err
}

func (q *eager) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	fresh, err := q.Queue.Update(ctx, l, text, visibility)
	if err != nil {
		return fresh, err
	}
	q.count()
	whole := time.Duration(math.Ceil(visibility.Seconds())) * time.Second
	if q.waits[whole]++; time.Since(q.first) < 2*time.Minute {
		q.longest = max(q.longest, whole)
	}
	time.AfterFunc(whole, q.wake)
	return fresh, nil
}

// newerCodec leaves every email to another worker.
type newerCodec struct{ codec.Codec[email] }

func (c newerCodec) Decode([]byte) (e email, err error) { return e, codec.ErrNewer }

// newerClaims cannot open a claim.
type newerClaims struct{ listener.Claims }

func (newerClaims) Open(context.Context, string) ([]byte, error) {
	return nil, fmt.Errorf("a claim of next year: %w", codec.ErrNewer)
}

// filled returns the text with spaces up to the largest size, which leaves no room for a record.
func filled(text string) string { return text + strings.Repeat(" ", queue.MaxText-len(text)) }

// B-19: a message that no worker can handle, whatever the reason, comes often for 2 min and then less and less often: it costs at
// most 150 requests on its first day and 60 on each later one. It is never poison, and its first worker handles it at the
// first attempt.
func TestAMessageThatNobodyCanHandleCostsLittle(t *testing.T) {
	const sent = "&at=1795305600000" // gives its room to the record
	largest := func(b *bundle) {
		n := queue.MaxText - 300
		for ; ; n++ {
			if _, err := emails.Producer(b.queue.Sibling("-scratch"), &producer.Options[email]{Create: true}).Send(b.Context(), email{strings.Repeat("x", n)}, &producer.SendOptions{JobID: "7"}); errors.Is(err, queue.ErrTooLarge) {
				break
			} else if err != nil {
				b.Fatal(err)
			}
		}
		if _, err := emails.Producer(b.queue, nil).Send(b.Context(), email{strings.Repeat("x", n-1)}, &producer.SendOptions{JobID: "7"}); err != nil {
			b.Fatal(err)
		}
	}
	text := func(text string) func(*bundle) {
		return func(b *bundle) {
			if _, err := b.queue.Enqueue(b.Context(), text, nil); err != nil {
				b.Fatal(err)
			}
		}
	}
	knows, newer := emails, kinds.Kind[email]{Name: "email", Codec: newerCodec{codec.JSON[email]()}}
	for _, c := range []struct {
		name   string
		send   func(*bundle)
		worker kinds.Kind[email] // that cannot handle it; none of its name if zero
		claims listener.Claims
		runs   bool // whether a worker with the kind "email" and without claims can handle it
	}{
		{"kind", func(b *bundle) { send(b, emails, email{}) }, kinds.Kind[email]{}, nil, true},
		{"kind, sent with a delay", func(b *bundle) {
			if _, err := emails.Producer(b.queue, nil).Send(b.Context(), email{}, &producer.SendOptions{Delay: day}); err != nil {
				b.Fatal(err)
			}
		}, kinds.Kind[email]{}, nil, true},
		{"kind, largest that can be sent", largest, kinds.Kind[email]{}, nil, true},
		{"kind, full-size", text(filled("millrace/2?kd=email" + sent + "\n{}")), kinds.Kind[email]{}, nil, true},
		{"kind, full-size, without a time", text(filled("millrace/2?kd=email\n{}")), kinds.Kind[email]{}, nil, false},
		{"envelope", text("millrace/9?id=7\n{}"), knows, nil, false},
		{"envelope, full-size", text(filled("millrace/9?id=7\n{}")), knows, nil, false},
		{"claim, without claims", text("millrace/2?kd=email&cl=bodies%2F7\n"), knows, nil, false},
		{"claim that cannot be opened", text("millrace/2?kd=email&cl=bodies%2F7\n"), knows, newerClaims{}, false},
		{"body", func(b *bundle) { send(b, emails, email{}) }, newer, nil, true},
		{"body, full-size", text(filled("millrace/2?kd=email" + sent + "\n{}")), newer, nil, true},
		{"body, full-size, without a time", text(filled("millrace/2?kd=email\n{}")), newer, nil, false},
		{"items", func(b *bundle) {
			if _, err := emails.Producer(b.queue, nil).SendGroup(b.Context(), make([]email, 2), nil); err != nil {
				b.Fatal(err)
			}
		}, newer, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(b *bundle) {
				c.send(b)
				q := &eager{Queue: b.queue, requests: map[int]int{}, waits: map[time.Duration]int{}}
				b.options.Claims, b.options.Fetch.Idle = c.claims, listener.Idle{Min: day, Max: day}
				b.options.Poison = listener.PoisonPolicy{MaxAttempts: 1, MaxLost: 1}
				known := []listener.Kind{orders.Handle(handler[order](b, nil), nil)}
				if c.worker.Name != "" {
					known = append(known, c.worker.Handle(handler[email](b, nil), nil))
				}
				worker := must(listener.NewKinds(q, known, b.options))
				q.wake = worker.Wake
				state := b.run(4*day, worker)
				if q.requests[1] > 150 || q.requests[2] > 60 || q.requests[3] > 60 || q.requests[1] < 130 || q.requests[2] < 48 {
					b.Errorf("got %d requests on the first day, and then %d and %d", q.requests[1], q.requests[2], q.requests[3])
				}
				if most := slices.Max(append(slices.Collect(maps.Keys(q.waits)), 0)); q.longest > 4*time.Second || most > time.Hour || len(q.waits) < 20 { // with jitter
					b.Errorf("it was hidden for up to %v within 2 min, and in all for %v", q.longest, q.waits)
				}
				if state.Outcomes[listener.Poisoned] != 0 || b.depth() != 1 || len(b.records()) != 0 || len(b.handled) != 0 {
					b.Fatalf("got %d messages, the records %+v, handled %v, state %+v", b.depth(), b.records(), b.handled, state)
				}

				if !c.runs {
					return
				}
				b.options.Fetch.Idle = listener.Idle{}
				b.run(time.Hour+time.Minute, b.kindsOf(emails.Handle(handler[email](b, nil), nil)))
				if got := b.handled["email"]; len(got) == 0 || got[0].attempt != 1 || b.depth() != 0 || len(b.records()) != 0 {
					b.Errorf("its first worker handled %d jobs, and left %d messages and the records %+v", len(got), b.depth(), b.records())
				}
			})
		})
	}
}
