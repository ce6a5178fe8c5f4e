package millrace

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// eventLog records events in order.
type eventLog struct {
	mu     sync.Mutex
	events []string // guarded by mu
}

func (l *eventLog) record(event string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, event)
}

func (l *eventLog) recorded() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// runner returns a runner that records its stop and its return. Once stopped, it returns when
// mayReturn is closed or it is halted.
func (l *eventLog) runner(name string, mayReturn <-chan struct{}) *runner {
	return newRunner(func(ctx context.Context, halted <-chan struct{}) error {
		<-ctx.Done()
		l.record(name + " stops")
		select {
		case <-mayReturn:
		case <-halted:
		}
		l.record(name + " returns")
		return nil
	})
}

func TestTheLastStageDrainsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log eventLog
		atOnce := make(chan struct{})
		close(atOnce)
		slow := make(chan struct{})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- RunOrdered(ctx, log.runner("server", atOnce), Together(log.runner("a", slow), newRunner(untilStopped)))
		}()
		synctest.Wait()
		stop()
		synctest.Wait()
		if got, want := log.recorded(), []string{"a stops"}; !slices.Equal(got, want) {
			t.Errorf("events while the listeners drain: got %q, want %q", got, want)
		}
		close(slow)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got, want := log.recorded(), []string{"a stops", "a returns", "server stops", "server returns"}; !slices.Equal(got, want) {
			t.Errorf("events: got %q, want %q", got, want)
		}
	})
}

func TestAStageThatFailsStopsTheOthersInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log eventLog
		atOnce := make(chan struct{})
		close(atOnce)
		broken := errors.New("no such queue")
		err := RunOrdered(t.Context(), log.runner("first", atOnce), log.runner("second", atOnce),
			newRunner(func(context.Context, <-chan struct{}) error { return broken }))
		if !errors.Is(err, broken) {
			t.Errorf("got error %v, want %v", err, broken)
		}
		if got, want := log.recorded(), []string{"second stops", "second returns", "first stops", "first returns"}; !slices.Equal(got, want) {
			t.Errorf("events: got %q, want %q", got, want)
		}
	})
}

func TestASecondSignalHaltsEveryStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log eventLog
		never := make(chan struct{})
		ordered, err := inOrder([]Runner{log.runner("first", never), log.runner("second", never)})
		if err != nil {
			t.Fatal(err)
		}
		signals := make(chan os.Signal, 2)
		signals <- os.Interrupt
		signals <- os.Interrupt
		if err := run(t.Context(), signals, func() {}, ordered); err != nil {
			t.Error(err)
		}
	})
}

func TestNilIsNotRun(t *testing.T) {
	var typed *runner
	for name, run := range map[string]func() error{
		"nil":              func() error { return Run(t.Context(), nil) },
		"a typed nil":      func() error { return Run(t.Context(), newRunner(untilStopped), typed) },
		"an ordered nil":   func() error { return RunOrdered(t.Context(), typed) },
		"no stages":        func() error { return RunOrdered(t.Context()) },
		"a group of none":  func() error { return Run(t.Context(), Together()) },
		"a nil in a group": func() error { return Run(t.Context(), Together(typed)) },
		"a nil server":     func() error { return Run(t.Context(), HTTP(nil, nil)) },
	} {
		if err := run(); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
}

// httpServer returns an HTTP runner on a free port. A request for /slow closes requested and is
// responded to when mayRespond is closed.
func httpServer(t *testing.T, o *HTTPOptions) (r Runner, address string, requested, mayRespond chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = l.Addr().String()
	_ = l.Close()
	requested, mayRespond = make(chan struct{}), make(chan struct{})
	return HTTP(&http.Server{Addr: address, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(requested)
			select {
			case <-mayRespond:
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, "ok")
	})}, o), address, requested, mayRespond
}

// get retries until the server listens, and returns the body of its response.
func get(t *testing.T, url string) (string, error) {
	t.Helper()
	for {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
		if err != nil {
			if strings.Contains(err.Error(), "refused") && t.Context().Err() == nil {
				continue
			}
			return "", err
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		return string(body), err
	}
}

func TestAnHTTPServerFinishesItsRequests(t *testing.T) {
	server, address, requested, mayRespond := httpServer(t, nil)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- RunOrdered(ctx, server, newRunner(untilStopped)) }()
	responses := make(chan string)
	go func() {
		body, err := get(t, "http://"+address+"/slow")
		if err != nil {
			body = err.Error()
		}
		responses <- body
	}()
	<-requested
	stop()
	close(mayRespond)
	if got, want := <-responses, "ok"; got != want {
		t.Errorf("response to the request in flight: got %q, want %q", got, want)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAHaltedHTTPServerClosesItsConnections(t *testing.T) {
	server, address, requested, _ := httpServer(t, nil)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- server.Run(ctx) }()
	failed := make(chan error)
	go func() {
		_, err := get(t, "http://"+address+"/slow")
		failed <- err
	}()
	<-requested
	stop()
	server.Halt()
	server.Halt() // more than once is fine
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := <-failed; err == nil {
		t.Error("request in flight: got a response, want an error")
	}
}

// A server with PreStop responds after the listeners have stopped. Halt ends that.
func TestAnHTTPServerRespondsUntilPreStopIsOver(t *testing.T) {
	for _, run := range []func(context.Context, ...Runner) error{Run, RunOrdered} {
		server, address, _, _ := httpServer(t, &HTTPOptions{PreStop: time.Hour})
		ctx, stop := context.WithCancel(t.Context())
		stopped, done := make(chan struct{}), make(chan error)
		listener := newRunner(func(ctx context.Context, _ <-chan struct{}) error {
			defer close(stopped)
			<-ctx.Done()
			return nil
		})
		go func() { done <- run(ctx, server, listener) }()
		if _, err := get(t, "http://"+address+"/"); err != nil {
			t.Fatal(err)
		}
		stop()
		<-stopped
		responses := 0
		for range 10 {
			if response, err := http.Get("http://" + address + "/"); err == nil {
				responses++
				_ = response.Body.Close()
			}
		}
		server.Halt()
		if err := <-done; err != nil || responses != 10 {
			t.Errorf("%d of 10 requests after the stop have responses, Run returned %v; want all", responses, err)
		}
	}
}

// PreStop counts from the stop, also while runners drain that stop before the server.
func TestPreStopBeginsWithTheStop(t *testing.T) {
	for drain, want := range map[time.Duration]time.Duration{0: 5 * time.Second, 3 * time.Second: 5 * time.Second, time.Minute: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			server := newRunner(func(ctx context.Context, _ <-chan struct{}) error {
				over, end := afterStop(ctx, 5*time.Second)
				defer end()
				<-ctx.Done()
				<-over.Done()
				return nil
			})
			listener := newRunner(func(ctx context.Context, _ <-chan struct{}) error { <-ctx.Done(); time.Sleep(drain); return nil })
			begin := time.Now().Add(time.Minute) // of the stop
			time.AfterFunc(time.Minute, stop)
			if err := RunOrdered(ctx, server, listener); err != nil {
				t.Error(err)
			}
			if ended := time.Since(begin); ended != want {
				t.Errorf("with a drain of %v it ended %v after the stop, want %v", drain, ended, want)
			}
		})
	}
}

func TestAnHTTPServerThatCannotListenFailsAtOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	err = RunOrdered(t.Context(), HTTP(&http.Server{Addr: l.Addr().String()}, nil), newRunner(untilStopped))
	if err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("got error %v, want one that names %v", err, l.Addr())
	}
}
