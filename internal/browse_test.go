package internal_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/browse"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// queueOf returns a queue with n messages.
func queueOf(t *testing.T, n int) queue.Manager {
	t.Helper()
	q := must(localqueue.New(nil)).Queue(queue.Name{Account: "acme", Queue: "orders"})
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if _, err := q.Enqueue(t.Context(), fmt.Sprintf("millrace/1?id=%d\nbody", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	return q
}

// unordered is a queue that returns some of the visible messages, in no order.
type unordered struct {
	queue.Queue
	draw func(limit int) int
}

func (q *unordered) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	time.Sleep(50 * time.Millisecond)
	batch, err := q.Queue.Dequeue(ctx, queue.MaxBatch, visibility)
	if err != nil {
		return nil, err
	}
	keep := min(1+q.draw(n), n, len(batch))
	for len(batch) > keep {
		i := q.draw(len(batch))
		if _, err := q.Update(ctx, batch[i].Lease, batch[i].Text, 0); err != nil {
			return nil, err
		}
		batch = append(batch[:i], batch[i+1:]...)
	}
	return batch, nil
}

// Whatever the order, no message is shown twice or stays hidden, and the walk ends, though others
// put messages all the time.
func TestAWalkEndsAndShowsNoMessageTwice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 150).Draw(rt, "messages")
		seed := rapid.Uint64().Draw(rt, "seed")
		draw := func(limit int) int {
			seed = seed*6364136223846793005 + 1442695040888963407
			return int((seed >> 33) % uint64(max(limit, 1)))
		}
		comes := rapid.Bool().Draw(rt, "others put messages")
		synctest.Test(t, func(t *testing.T) {
			local := queueOf(t, n)
			time.Sleep(2 * time.Second)
			shown, pages := make(map[queue.ID]bool), 0
			for page, err := range browse.Pages(t.Context(), &unordered{local, draw}, nil) {
				if err != nil {
					t.Fatal(err)
				}
				if pages++; pages > n {
					t.Fatalf("%d pages of %d messages", pages, n)
				}
				for _, m := range page.Messages {
					if shown[m.ID] {
						t.Errorf("%s is shown twice", m.ID)
					}
					shown[m.ID] = true
				}
				if comes {
					time.Sleep(time.Second)
					for range 3 {
						if _, err := local.Enqueue(t.Context(), "later", nil); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			if !comes && len(shown) < n*9/10 { // without an order some may never come up
				t.Errorf("%d of %d messages were shown", len(shown), n)
			}
			time.Sleep(2 * time.Second)
			visible := 0
			for {
				batch, err := local.Dequeue(t.Context(), queue.MaxBatch, time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				if len(batch) == 0 {
					break
				}
				visible += len(batch)
			}
			if p, err := local.Properties(t.Context()); err != nil || int64(visible) != p.Depth {
				t.Errorf("%d of %d messages are visible, %v", visible, p.Depth, err)
			}
		})
	})
}

// What the caller settles is not given back, what it wants again comes again, and a walk that is
// left, by a break or a panic, gives back its page.
func TestTheCallerSaysWhatIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queueOf(t, 10)
		again := 0
		for page, err := range browse.Pages(t.Context(), q, &browse.Options{Page: 4}) {
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range page.Messages {
				switch head, _, _, _ := envelope.Open(m.Text, codec.Envelope); head.ID {
				case "3":
					if again++; again < 3 {
						m.Again()
					}
				case "5":
					m.Settle()
				}
			}
		}
		if again != 3 {
			t.Errorf("a message came %d times, want 3", again)
		}
		func() {
			defer func() { _ = recover() }()
			for range browse.Pages(t.Context(), q, nil) {
				panic("the caller's")
			}
		}()
		for range browse.Pages(t.Context(), q, nil) {
			break
		}
		time.Sleep(2 * time.Second) // those that came again are hidden for a moment
		visible, err := q.Peek(t.Context(), queue.MaxBatch)
		if err != nil || len(visible) != 9 {
			t.Errorf("%d messages are visible, %v; want all but the one that was kept", len(visible), err)
		}
	})
}

// A walk that is ended gives back its page, and says why it ended.
func TestAWalkEndsWithItsContext(t *testing.T) {
	q := queueOf(t, 100)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	pages := 0
	for page, err := range browse.Pages(ctx, q, nil) {
		if pages++; pages == 1 {
			stop()
		} else if !errors.Is(err, context.Canceled) || len(page.Messages) != 0 {
			t.Errorf("got %d messages, %v", len(page.Messages), err)
		}
	}
	if visible, err := q.Dequeue(t.Context(), queue.MaxBatch, time.Minute); pages != 2 || err != nil || len(visible) != 32 {
		t.Errorf("got %d pages, %d visible, %v", pages, len(visible), err)
	}
}

// Deliveries of ours are accounted for in envelopes and nowhere else.
func TestOnlyEnvelopesAreRewritten(t *testing.T) {
	for text, want := range map[string]string{
		"millrace/1?id=7&n=2&s=3&st=1&zz=x\nbody": "millrace/1?id=7&n=2&s=4&st=1&zz=x\nbody",
		"millrace/1?id=7\n":                       "millrace/1?id=7&s=1\n",
		"millrace/99?id=7\nbody":                  "millrace/99?id=7\nbody",
		"millrace/1?broken":                       "millrace/1?broken",
		"millrace/2?id=7&cl=blob\n":               "millrace/2?id=7&s=1&cl=blob\n",
		"millrace/2?gr=1&gd=AQ\n1:a\n":            "millrace/2?s=1&gr=1&gd=AQ\n1:a\n",
		"{}":                                      "{}",
		"":                                        "",
	} {
		if got := browse.Accounted(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// A message whose text has no room for the record is given back without it.
func TestAFullMessageIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queueOf(t, 0)
		const head = "millrace/1?id=7\n"
		full := head + strings.Repeat("x", queue.MaxText-len(head))
		if _, err := q.Enqueue(t.Context(), full, nil); err != nil {
			t.Fatal(err)
		}
		for _, err := range browse.Pages(t.Context(), q, nil) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if visible, err := q.Peek(t.Context(), 1); err != nil || len(visible) != 1 || visible[0].Text != full {
			t.Errorf("got %d visible messages, %v; want the message unchanged", len(visible), err)
		}
	})
}

// busy is a queue whose dequeues fail at first. It records what their contexts say.
type busy struct {
	queue.Queue
	failures int
	repeats  []int
	causes   []request.Cause
}

func (q *busy) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	q.repeats, q.causes = append(q.repeats, request.Repeats(ctx)), append(q.causes, request.CauseOf(ctx))
	if len(q.repeats) <= q.failures {
		return nil, queue.ErrOutcomeUnknown
	}
	return q.Queue.Dequeue(ctx, n, visibility)
}

// A page that is asked for again says so, so that a slow service gets more time, and has the cause of
// the walk.
func TestARepeatedPageKnowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &busy{Queue: queueOf(t, 1), failures: 2}
		for _, err := range browse.Pages(request.WithCause(t.Context(), request.CausePurge), q, nil) {
			if err != nil {
				t.Error(err)
			}
		}
		if want := []int{0, 1, 2}; !slices.Equal(q.repeats, want) {
			t.Errorf("repeats: got %v, want %v", q.repeats, want)
		}
		if slices.Contains(q.causes, request.CauseUnknown) || q.causes[0] != request.CausePurge {
			t.Errorf("causes: got %v, want that of the walk", q.causes)
		}
	})
}

// limitedQueue is a queue of which a limit holds back every second dequeue.
type limitedQueue struct {
	queue.Queue
	asked int
}

func (q *limitedQueue) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	if q.asked++; q.asked%2 == 1 {
		return nil, &queue.Error{Kind: queue.ErrLimited, Op: "dequeue", RetryAfter: 10 * time.Minute}
	}
	return q.Queue.Dequeue(ctx, n, visibility)
}

// A limit of the program makes a walk wait, however long, and does not end it.
func TestAWalkWaitsForALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, shown := time.Now(), 0
		for page, err := range browse.Pages(t.Context(), &limitedQueue{Queue: queueOf(t, 40)}, nil) {
			if err != nil {
				t.Fatal(err)
			}
			shown += len(page.Messages)
		}
		if shown != 40 || time.Since(begin) < 20*time.Minute {
			t.Errorf("got %d messages in %v, want all 40 in two pages, each 10 min late", shown, time.Since(begin))
		}
	})
}

// The end of the context ends the wait for a limit.
func TestAWalkDoesNotWaitForALimitBeyondItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var last error
		for _, err := range browse.Pages(ctx, &limitedQueue{Queue: queueOf(t, 1)}, nil) {
			last = err
		}
		if !errors.Is(last, context.DeadlineExceeded) || time.Since(begin) != time.Minute {
			t.Errorf("got error %v after %v, want the end of the context after a minute", last, time.Since(begin))
		}
	})
}
