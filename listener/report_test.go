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

// logLines returns the fields of each line that a JSON logger wrote.
func logLines(t *testing.T, log string) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range strings.Lines(log) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("log line %s: %v", line, err)
		}
		all = append(all, fields)
	}
	return all
}

// withMessage returns the lines with the given message.
func withMessage(all []map[string]any, msg string) []map[string]any {
	var found []map[string]any
	for _, line := range all {
		if line["msg"] == msg {
			found = append(found, line)
		}
	}
	return found
}

func TestLoopsAreLoggedForDebugging(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(3)
		var log strings.Builder
		o := &Options[job]{Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
		b.run(New(b.queue, nothing, o))
		advance(time.Second)
		b.mustFinish()
		all := logLines(t, log.String())
		started, received := withMessage(all, "loop started"), withMessage(all, "batch received")
		if len(started) != 1 || len(received) != 1 || received[0]["messages"] != 3.0 || started[0]["queue"] != "test/jobs" || received[0]["queue"] != "test/jobs" {
			b.Errorf("got %v and %v, want one loop, and one batch of 3, on test/jobs", started, received)
		}
	})
}

func TestAListenerLogsItsStartPoisonDrainAndStop(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(3)
		var log strings.Builder
		logger := slog.New(slog.NewJSONHandler(&log, nil))
		o := &Options[job]{Logger: logger, Concurrency: 8, Poison: poison.Policy{MaxAttempts: 1}}
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
		advance(time.Second)
		b.mustFinish()

		all := logLines(t, log.String())
		var messages []string
		for _, line := range all {
			messages = append(messages, line["msg"].(string))
			if line["queue"] != "test/jobs" {
				t.Errorf("queue of the line %v: got %v, want test/jobs", line, line["queue"])
			}
		}
		if want := []string{"listening", "delivery poisoned", "draining", "stopped"}; !slices.Equal(messages, want) {
			t.Fatalf("messages: got %q, want %q", messages, want)
		}
		for i, want := range []map[string]any{
			{"concurrency": 8.0, "poison": "test/jobs-poison"},
			{"attempt": 1.0, "outcome": "poisoned", "reason": "attempts", "error": "no address"},
			{"running": 1.0, "hint": "a second signal stops at once"},
			{"succeeded": 2.0, "poisoned": 1.0, "retried": 0.0, "requests": float64(len(b.queue.log)), "by_cause": countsOf(l).String()},
		} {
			for name, value := range want {
				if got := all[i][name]; got != value {
					t.Errorf("%q, %s: got %v, want %v", messages[i], name, got, value)
				}
			}
		}
		if l.State().Requests != int64(len(b.queue.log)) {
			t.Errorf("Requests: got %d, want %d", l.State().Requests, len(b.queue.log))
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
			advance(500 * time.Millisecond)
			b.mustFinish()
			messages := map[any]bool{}
			for _, line := range logLines(t, log.String()) {
				if line["message"] == nil {
					continue
				}
				messages[line["message"]] = true
				if name != "a panic" {
					continue
				}
				stack, _ := line["stack"].([]any)
				if len(stack) == 0 || !strings.Contains(fmt.Sprint(stack[0]), "report_test.go:") {
					t.Errorf("%s: got stack %v, want report_test.go first", name, stack)
				}
				for _, frame := range stack {
					if strings.Contains(fmt.Sprint(frame), "dispatcher") || strings.Contains(fmt.Sprint(frame), "runtime.") {
						t.Errorf("%s: got frame %v, want none of the library or the runtime", name, frame)
					}
				}
			}
			if len(messages) != n {
				t.Errorf("%s: got %d messages logged, want %d", name, len(messages), n)
			}
		})
	}
}

func TestEachKindOfErrorIsLogged(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(30)
		var log strings.Builder
		o := &Options[job]{Logger: slog.New(slog.NewJSONHandler(&log, nil)), Concurrency: 100}
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			return []error{errors.New("no address"), errors.New("out of stock"), fmt.Errorf("order %d: timed out", m.Body.N)}[m.Body.N%3]
		}, o)
		b.run(l)
		advance(500 * time.Millisecond)
		b.mustFinish()
		var texts []string
		for _, line := range withMessage(logLines(t, log.String()), "delivery retried") {
			text := line["error"].(string)
			if _, after, numbered := strings.Cut(text, ": "); numbered {
				text = after
			}
			texts = append(texts, text)
		}
		slices.Sort(texts)
		if want := []string{"no address", "out of stock", "timed out"}; !slices.Equal(texts, want) {
			t.Errorf("logged errors: got %q, want %q", texts, want)
		}
	})
}

func TestTheKindsOfErrorsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limiter logLimiter
		const n = 10 * maxKinds
		logged := 0
		for i := range n {
			if _, ok := limiter.allow("delivery retried", "error of kind "+strings.Repeat("x", i%300)+string(rune('a'+i%26))); ok {
				logged++
			}
		}
		left := 0
		for _, k := range limiter.suppressed() {
			left += k.suppressed
		}
		if len(limiter.kinds) > maxKinds+1 || logged+left != n {
			t.Errorf("got %d kinds, %d lines logged and %d left out; want at most %d kinds and %d lines",
				len(limiter.kinds), logged, left, maxKinds+1, n)
		}
		time.Sleep(time.Minute)
		if _, ok := limiter.allow("poll failed", "a new kind"); !ok || len(limiter.kinds) > 2 {
			t.Errorf("new kind: got logged %v and %d kinds kept, want true and at most 2", ok, len(limiter.kinds))
		}
	})
}

func TestTheQueueIsCreatedIfCreateIsSet(t *testing.T) {
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
			advance(time.Second)
			if got := l.State().Ready(); got != create {
				t.Errorf("with Create %v: got ready %v; want %v", create, got, create)
			}
			if create {
				b.put(1)
				<-done
			}
			b.mustFinish()
			want := "queue created"
			if !create {
				want = "millrace create jobs"
			}
			if !strings.Contains(log.String(), want) {
				t.Errorf("with Create %v: got log\n%s\nwant %q in it", create, log.String(), want)
			}
			wantRequests := 0
			if create {
				wantRequests = 1
			}
			if got := len(b.queue.sent("create")); got != wantRequests {
				t.Errorf("with Create %v: got %d create requests, want %d", create, got, wantRequests)
			}
		})
	}
}

func TestCreateAcceptsAQueueWithOtherMetadata(t *testing.T) {
	bubble(t, func(b *bundle) {
		if err := b.queue.Queue.(queue.Manager).SetMetadata(b.Context(), map[string]string{"owner": "sales"}); err != nil {
			b.Fatal(err)
		}
		missing := true
		b.queue.intercept = func(op string, act func() error) error {
			if op == "dequeue" && missing { // sent before the queue existed
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
		advance(time.Second)
		if !l.State().Ready() {
			t.Errorf("got state %+v, want ready", l.State())
		}
		b.mustFinish()
	})
}

func TestTheStateHasPhasePollAndError(t *testing.T) {
	bubble(t, func(b *bundle) {
		var down atomic.Bool
		b.queue.intercept = func(op string, act func() error) error {
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
				t.Errorf("%s: got phase %v, ready %v, healthy %v; want %v, %v, %v",
					when, st.Phase, st.Ready(), st.Healthy(), phase, ready, healthy)
			}
		}
		check("before", Waiting, false, true)
		b.run(l)
		advance(5 * time.Second)
		check("while it runs", Running, true, true)
		down.Store(true)
		advance(5 * time.Second)
		check("in an outage", Running, false, true)
		if st := l.State(); !errors.Is(st.LastError, queue.ErrUnavailable) || time.Since(st.LastErrorAt) > 5*time.Second || st.PollError == nil {
			t.Errorf("got last error %v at %v, poll error %v; want ErrUnavailable within 5 s, and the same of the poll",
				st.LastError, st.LastErrorAt, st.PollError)
		}
		down.Store(false)
		advance(5 * time.Second)
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
