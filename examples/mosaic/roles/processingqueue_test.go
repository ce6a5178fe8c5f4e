package roles

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// openTest opens the queue of slice responses.
func openTest(t *testing.T, raw queue.Queue) (*ImageProcessingQueue[SliceResponse], *lockedBuffer) {
	t.Helper()
	log := &lockedBuffer{}
	q, err := openQueue[SliceResponse](func(string) (queue.Queue, error) { return raw, nil },
		&shared{jobs: jobsIn(blob.Memory()), logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return q, log
}

func testQueue() queue.Manager {
	return must(localqueue.New(nil)).Queue(queue.Name{Account: "test", Queue: sliceResponses})
}

// PM-15: sending creates the queue.
func TestAMissingQueueIsCreatedAndAnExistingOneKept(t *testing.T) {
	raw := testQueue()
	q, _ := openTest(t, raw)
	if err := q.Submit(t.Context(), goodSliceResponse()); err != nil {
		t.Fatal(err)
	}
	if err := raw.SetMetadata(t.Context(), map[string]string{"owner": "ada"}); err != nil {
		t.Fatal(err)
	}
	again, _ := openTest(t, raw)
	if err := again.Submit(t.Context(), goodSliceResponse()); err != nil {
		t.Fatal(err)
	}
	if p, err := raw.Properties(t.Context()); err != nil || p.Metadata["owner"] != "ada" || p.Depth != 2 {
		t.Errorf("existing queue: got %+v, %v; want owner ada and 2 messages", p, err)
	}
}

// PM-13: messages are validated before they are sent.
func TestInvalidMessagesAreNotSent(t *testing.T) {
	q, _ := openTest(t, testQueue())
	m := goodSliceResponse()
	m.SliceSequence = 1
	if err := q.Submit(t.Context(), m); err == nil {
		t.Error("sending an invalid message: got no error, want one")
	}
	if p, err := q.RawQueue.Properties(t.Context()); !errors.Is(err, queue.ErrQueueMissing) {
		t.Errorf("queue: got %+v, %v; want nothing sent", p, err)
	}
	if err := q.Submit(t.Context(), goodSliceResponse()); err != nil {
		t.Error(err)
	}
}

// every kind of invalid message, in every queue, is poison at once.
func TestAnInvalidMessageIsPoisonAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		p := w.open(nil)
		bad := []string{"", "{", "null", "[]", "{}", "words", `{"requestId":"not a guid"}`, `{"clientId":"x","requestId":"7d9ac1be-5b0c-4d3f-9a3e-0d6f2c1b8e55"}`}
		for _, name := range allQueues {
			for _, text := range bad {
				if _, err := w.queue(name).Enqueue(t.Context(), text, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		w.start(p)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n := w.depth(); n != 0 {
			t.Errorf("messages left: got %d, want 0", n)
		}
		if n, want := w.poisoned(), int64(len(bad)*len(allQueues)); n != want {
			t.Errorf("poison messages: got %d, want %d", n, want)
		}
		p.end()
	})
}

func TestAQueueThatCannotBeOpenedIsAnError(t *testing.T) {
	broken := errors.New("broken")
	_, err := Open(func(string) (queue.Queue, error) { return nil, broken }, blob.Memory(), Options{})
	if !errors.Is(err, broken) {
		t.Errorf("Open: got %v, want %v", err, broken)
	}
}

// hidingQueue records for how long its dequeues hide messages.
type hidingQueue struct {
	queue.Queue
	mu     sync.Mutex
	hidden []time.Duration // guarded by mu
}

func (q *hidingQueue) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	q.mu.Lock()
	q.hidden = append(q.hidden, visibility)
	q.mu.Unlock()
	return q.Queue.Dequeue(ctx, n, visibility)
}

// PM-10, PM-11, PM-15, X-17: the timeout and the threshold of a queue's metadata are those that its messages
// are accepted with. Invalid ones are ignored.
func TestMessagesAreAcceptedWithTheSettingsOfTheirQueue(t *testing.T) {
	for _, c := range []struct {
		metadata map[string]string
		hidden   time.Duration
		attempts int
	}{
		{nil, 30 * time.Second, 5},
		{map[string]string{"DefaultTimeout": "60", "poisonthreshold": "2"}, time.Minute, 2},
		{map[string]string{"defaulttimeout": "15", "PoisonThreshold": "7"}, 15 * time.Second, 7},
		{map[string]string{"defaulttimeout": "30s", "poisonthreshold": "0"}, 30 * time.Second, 5},
		{map[string]string{"defaulttimeout": "-1", "poisonthreshold": "many"}, 30 * time.Second, 5},
	} {
		synctest.Test(t, func(t *testing.T) {
			raw := &hidingQueue{Queue: testQueue()}
			if err := raw.Create(t.Context(), c.metadata); err != nil {
				t.Fatal(err)
			}
			q, log := openTest(t, raw)
			if err := q.Submit(t.Context(), goodSliceResponse()); err != nil {
				t.Fatal(err)
			}
			attempts := 0
			l := q.accept(func(context.Context, *listener.Message[SliceResponse]) error { attempts++; return io.ErrUnexpectedEOF },
				listener.Options[SliceResponse]{Logger: q.shared.logger})
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- l.Run(ctx) }()
			time.Sleep(10 * time.Minute)
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if len(raw.hidden) == 0 || raw.hidden[0] != c.hidden {
				t.Errorf("metadata %v: visibility timeouts: got %v, want first %v", c.metadata, raw.hidden, c.hidden)
			}
			if attempts != c.attempts {
				t.Errorf("metadata %v: attempts: got %d, want %d; log: %s", c.metadata, attempts, c.attempts, log)
			}
		})
	}
}
