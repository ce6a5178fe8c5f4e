package listener

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// lines returns what a logger in JSON wrote: the fields of each line.
func lines(t *testing.T, log string) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range strings.Lines(log) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, fields)
	}
	return all
}

// saying returns the lines with this message.
func saying(all []map[string]any, msg string) []map[string]any {
	var some []map[string]any
	for _, line := range all {
		if line["msg"] == msg {
			some = append(some, line)
		}
	}
	return some
}

func TestAWorkerSaysWhatItDoes(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(3)
		var log strings.Builder
		o := &Options[job]{Logger: slog.New(slog.NewJSONHandler(&log, nil)), Concurrency: 8, Poison: poison.Policy{MaxAttempts: 1}}
		l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
			switch m.Body.N {
			case 0:
				return errors.New("no address")
			case 1:
				return sleep(ctx, 20*time.Second)
			}
			return nil
		}, o)
		b.run(l)
		after(time.Second)
		b.finished()

		all := lines(t, log.String())
		var said []string
		for _, line := range all {
			said = append(said, line["msg"].(string))
			if line["queue"] != "test/jobs" {
				t.Errorf("the line %v does not name the queue", line)
			}
		}
		if want := []string{"listening", "delivery poisoned", "draining", "stopped"}; !slices.Equal(said, want) {
			t.Fatalf("it said %q, want %q", said, want)
		}
		for i, want := range []map[string]any{
			{"concurrency": 8.0, "poison": "test/jobs-poison"},
			{"attempt": 1.0, "outcome": "poisoned", "reason": "attempts", "error": "no address"},
			{"running": 1.0, "hint": "a second signal stops at once"},
			{"succeeded": 2.0, "poisoned": 1.0, "retried": 0.0, "requests": float64(len(b.queue.log))},
		} {
			for name, value := range want {
				if got := all[i][name]; got != value {
					t.Errorf("%q: got %s %v, want %v", said[i], name, got, value)
				}
			}
		}
		if l.State().Requests != int64(len(b.queue.log)) {
			t.Errorf("got %d requests, want %d", l.State().Requests, len(b.queue.log))
		}
	})
}

func TestPoisonAndPanicsAreAlwaysLogged(t *testing.T) {
	for name, fail := range map[string]func(n int) error{
		"poison":  func(n int) error { return Poison(fmt.Errorf("order %d is malformed", n)) },
		"a panic": func(int) error { panic("nothing there") },
	} {
		bubble(t, func(b *bundle) {
			const n = 50
			b.put(n)
			var log strings.Builder
			o := &Options[job]{Logger: slog.New(slog.NewJSONHandler(&log, nil)), Concurrency: 100}
			l := New(b.queue, func(_ context.Context, m *Message[job]) error { return fail(m.Body.N) }, o)
			b.run(l)
			after(500 * time.Millisecond)
			b.finished()
			messages := map[any]bool{}
			for _, line := range lines(t, log.String()) {
				if line["message"] == nil {
					continue
				}
				messages[line["message"]] = true
				if name != "a panic" {
					continue
				}
				stack, _ := line["stack"].([]any)
				if len(stack) == 0 || !strings.Contains(fmt.Sprint(stack[0]), "report_test.go:") {
					t.Errorf("%s: got the stack %v, want where it panicked first", name, stack)
				}
				for _, frame := range stack {
					if strings.Contains(fmt.Sprint(frame), "dispatcher") || strings.Contains(fmt.Sprint(frame), "runtime.") {
						t.Errorf("%s: the stack has the frame %v of the library or the runtime", name, frame)
					}
				}
			}
			if len(messages) != n {
				t.Errorf("%s: %d of %d messages were logged", name, len(messages), n)
			}
		})
	}
}

func TestDifferentErrorsAreLoggedEach(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(30)
		var log strings.Builder
		o := &Options[job]{Logger: slog.New(slog.NewJSONHandler(&log, nil)), Concurrency: 100}
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			return []error{errors.New("no address"), errors.New("out of stock"), fmt.Errorf("order %d: timed out", m.Body.N)}[m.Body.N%3]
		}, o)
		b.run(l)
		after(500 * time.Millisecond)
		b.finished()
		var said []string
		for _, line := range saying(lines(t, log.String()), "delivery retried") {
			text := line["error"].(string)
			if _, after, numbered := strings.Cut(text, ": "); numbered {
				text = after
			}
			said = append(said, text)
		}
		slices.Sort(said)
		if want := []string{"no address", "out of stock", "timed out"}; !slices.Equal(said, want) {
			t.Errorf("got the errors %q, want %q", said, want)
		}
	})
}

func TestTheKindsOfErrorsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines logLimiter
		const n = 10 * maxKinds
		logged := 0
		for i := range n {
			if _, ok := lines.allow("delivery retried", "error of kind "+strings.Repeat("x", i%300)+string(rune('a'+i%26))); ok {
				logged++
			}
		}
		left := 0
		for _, k := range lines.suppressed() {
			left += k.suppressed
		}
		if len(lines.kinds) > maxKinds+1 || logged+left != n {
			t.Errorf("%d kinds, %d logged and %d left out of %d", len(lines.kinds), logged, left, n)
		}
		time.Sleep(time.Minute)
		if _, ok := lines.allow("poll failed", "a new kind"); !ok || len(lines.kinds) > 2 {
			t.Errorf("got a new kind logged: %v, with %d kinds kept; want it logged and the old ones forgotten", ok, len(lines.kinds))
		}
	})
}

func TestTheQueueIsMadeWhenAsked(t *testing.T) {
	for _, create := range []bool{true, false} {
		bubble(t, func(b *bundle) {
			m := b.queue.Queue.(queue.Manager)
			if err := m.Drop(b.Context()); err != nil {
				b.Fatal(err)
			}
			time.Sleep(time.Hour) // until the name is free
			var log strings.Builder
			o := options()
			o.Create, o.Logger = create, textLogger(&log)
			done := make(chan int, 1)
			l := New(b.queue, func(_ context.Context, m *Message[job]) error { done <- m.Body.N; return nil }, o)
			b.run(l)
			after(time.Second)
			if got := l.State().Ready(); got != create {
				t.Errorf("with Create %v: got ready %v", create, got)
			}
			if create {
				b.put(1)
				<-done
			}
			b.finished()
			want := "queue created"
			if !create {
				want = "millrace create jobs"
			}
			if !strings.Contains(log.String(), want) {
				t.Errorf("with Create %v the log does not say %q:\n%s", create, want, log.String())
			}
			if got := len(b.queue.sent("create")); create && got != 1 || !create && got != 0 {
				t.Errorf("with Create %v: %d requests to create", create, got)
			}
		})
	}
}

func TestAQueueThatExistsWithOtherMetadataIsFine(t *testing.T) {
	bubble(t, func(b *bundle) {
		if err := b.queue.Queue.(queue.Manager).SetMetadata(b.Context(), map[string]string{"owner": "sales"}); err != nil {
			b.Fatal(err)
		}
		missing := true
		b.queue.tamper = func(op string, act func() error) error {
			if op == "dequeue" && missing { // one that was asked before it was there
				missing = false
				return &queue.Error{Op: "dequeue", Kind: queue.ErrQueueMissing}
			}
			return act()
		}
		o := options()
		o.Create = true
		o.OnError = func(err error) { t.Error(err) }
		l := New(b.queue, func(context.Context, *Message[job]) error { return nil }, o)
		b.run(l)
		after(time.Second)
		if !l.State().Ready() {
			t.Errorf("it is not ready: %+v", l.State())
		}
		b.finished()
	})
}

func TestTheStateTellsPhasePollAndError(t *testing.T) {
	bubble(t, func(b *bundle) {
		var down atomic.Bool
		b.queue.tamper = func(op string, act func() error) error {
			if op == "dequeue" && down.Load() {
				return &queue.Error{Op: "dequeue", Kind: queue.ErrUnavailable, Status: 503}
			}
			return act()
		}
		b.put(1)
		l := New(b.queue, func(ctx context.Context, _ *Message[job]) error { return sleep(ctx, 20*time.Second) }, options())
		check := func(when string, phase Phase, ready, healthy bool) {
			t.Helper()
			st := l.State()
			if st.Phase != phase || st.Ready() != ready || st.Healthy() != healthy {
				t.Errorf("%s: got phase %v, ready %v, healthy %v; want %v, %v, %v", when, st.Phase, st.Ready(), st.Healthy(), phase, ready, healthy)
			}
		}
		check("before", Waiting, false, true)
		b.run(l)
		after(5 * time.Second)
		check("while it runs", Running, true, true)
		down.Store(true)
		after(5 * time.Second)
		check("in an outage", Running, false, true)
		if st := l.State(); !errors.Is(st.LastError, queue.ErrUnavailable) || time.Since(st.LastErrorAt) > 5*time.Second || st.PollError == nil {
			t.Errorf("got the last error %v at %v, of a poll %v", st.LastError, st.LastErrorAt, st.PollError)
		}
		down.Store(false)
		after(5 * time.Second)
		check("after it", Running, true, true)
		b.stop()
		synctest.Wait()
		check("while it drains", Draining, false, true)
		if err := <-b.done; err != nil {
			t.Error(err)
		}
		check("afterwards", Stopped, false, false)
	})
}
