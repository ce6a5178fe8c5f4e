package roles

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// openTest opens the queue of slice responses in an engine.
func openTest(t *testing.T, engine *localqueue.Engine) (*ImageProcessingQueue[SliceResponse], string) {
	t.Helper()
	var log bytes.Buffer
	q, err := openQueue[SliceResponse](t.Context(), shared{
		open: func(name string) (queue.Queue, error) {
			return engine.Queue(queue.Name{Account: "test", Queue: name}), nil
		},
		logger: slog.New(slog.NewTextHandler(&log, nil)),
		sent:   func(uuid.UUID) {}, seen: func(uuid.UUID) func() { return func() {} },
		failed:  func(context.Context, uuid.UUID, string) error { return nil },
		foreign: func(context.Context, Head) bool { return false },
	})
	if err != nil {
		t.Fatal(err)
	}
	return q, log.String()
}

// PM-10, PM-11, X-17: threshold and time-out come from the metadata, or are the defaults.
func TestSettingsComeFromTheMetadata(t *testing.T) {
	const least = dispatcher.MinVisibility
	for _, c := range []struct {
		timeout, threshold string
		wantTimeout        time.Duration
		wantThreshold      int
		warnings           int
	}{
		{"", "", 30 * time.Second, poison.DefaultMaxAttempts, 0},
		{"60", "3", time.Minute, 3, 0},
		{"604800", "2147483647", 7 * 24 * time.Hour, 1<<31 - 1, 0},
		{"5", "1", least, 1, 0},
		{"4", "1", least, 1, 1}, // raised, because it is too short to be renewed
		{"1", "1", least, 1, 1},
		{"0", "0", 30 * time.Second, poison.DefaultMaxAttempts, 2},
		{"-1", "-5", 30 * time.Second, poison.DefaultMaxAttempts, 2},
		{"604801", "2147483648", 30 * time.Second, poison.DefaultMaxAttempts, 2},
		{"30s", "many", 30 * time.Second, poison.DefaultMaxAttempts, 2},
		{"99999999999999999999", "1.5", 30 * time.Second, poison.DefaultMaxAttempts, 2},
	} {
		engine := localqueue.New(nil)
		metadata := map[string]string{}
		if c.timeout != "" {
			metadata["DefaultTimeout"] = c.timeout // in any case
			metadata["poisonthreshold"] = c.threshold
			if err := engine.Queue(queue.Name{Account: "test", Queue: sliceResponses}).Create(t.Context(), metadata); err != nil {
				t.Fatal(err)
			}
		}
		q, log := openTest(t, engine)
		if q.Timeout != c.wantTimeout || q.PoisonThreshold != c.wantThreshold || strings.Count(log, "level=WARN") != c.warnings {
			t.Errorf("%q, %q: got %v, %d and the log %s; want %v, %d and %d warnings", c.timeout, c.threshold, q.Timeout, q.PoisonThreshold, log, c.wantTimeout, c.wantThreshold, c.warnings)
		}
	}
}

// PM-15: sending creates the queue.
func TestAMissingQueueIsCreatedAndAnExistingOneKept(t *testing.T) {
	engine := localqueue.New(nil)
	raw := engine.Queue(queue.Name{Account: "test", Queue: sliceResponses})
	openTest(t, engine)
	if _, err := raw.Properties(t.Context()); err != nil {
		t.Errorf("new queue: got the error %v, want none", err)
	}
	if err := raw.SetMetadata(t.Context(), map[string]string{"owner": "ada"}); err != nil {
		t.Fatal(err)
	}
	openTest(t, engine)
	if p, err := raw.Properties(t.Context()); err != nil || p.Metadata["owner"] != "ada" {
		t.Errorf("metadata of the existing queue: got %v, %v; want owner ada", p.Metadata, err)
	}
}

// PM-13: messages are validated before they are sent.
func TestInvalidMessagesAreNotSent(t *testing.T) {
	engine := localqueue.New(nil)
	q, _ := openTest(t, engine)
	m := goodSliceResponse()
	m.SliceSequence = 1
	if err := q.Submit(t.Context(), m); err == nil {
		t.Error("sending an invalid message: got no error, want one")
	}
	if p, err := q.RawQueue.Properties(t.Context()); err != nil || p.Depth != 0 {
		t.Errorf("depth: got %d, %v; want 0", p.Depth, err)
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
	_, err := Open(t.Context(), func(string) (queue.Queue, error) { return nil, broken }, blob.Memory(), nil)
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

// PM-11, PM-15: the timeout and the threshold of a queue's metadata are those that its messages
// are accepted with.
func TestMessagesAreAcceptedWithTheSettingsOfTheirQueue(t *testing.T) {
	for _, c := range []struct {
		metadata map[string]string
		hidden   time.Duration
		attempts int
	}{
		{nil, 30 * time.Second, 5},
		{map[string]string{"defaulttimeout": "60", "poisonthreshold": "2"}, time.Minute, 2},
		{map[string]string{"defaulttimeout": "7", "poisonthreshold": "7"}, 7 * time.Second, 7},
	} {
		synctest.Test(t, func(t *testing.T) {
			engine := localqueue.New(nil)
			raw := &hidingQueue{Queue: engine.Queue(queue.Name{Account: "test", Queue: sliceResponses})}
			if err := raw.Create(t.Context(), c.metadata); err != nil {
				t.Fatal(err)
			}
			q, err := openQueue[SliceResponse](t.Context(), shared{
				open:   func(string) (queue.Queue, error) { return raw, nil },
				logger: slog.New(slog.DiscardHandler),
				sent:   func(uuid.UUID) {}, seen: func(uuid.UUID) func() { return func() {} },
				failed:  func(context.Context, uuid.UUID, string) error { return nil },
				foreign: func(context.Context, Head) bool { return false },
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := q.Submit(t.Context(), goodSliceResponse()); err != nil {
				t.Fatal(err)
			}
			attempts := 0
			l := q.accept(func(context.Context, *listener.Message[SliceResponse]) error { attempts++; return io.ErrUnexpectedEOF }, tuning{})
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- l.Run(ctx) }()
			time.Sleep(10 * time.Minute)
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			for i, hidden := range raw.hidden {
				if hidden != c.hidden {
					t.Fatalf("metadata %v: visibility timeout of dequeue %d: got %v, want %v", c.metadata, i, hidden, c.hidden)
				}
			}
			if attempts != c.attempts {
				t.Errorf("metadata %v: attempts: got %d, want %d", c.metadata, attempts, c.attempts)
			}
		})
	}
}
