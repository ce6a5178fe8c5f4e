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
)

// diary records events in order.
type diary struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

func (d *diary) note(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

func (d *diary) read() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.lines)
}

// noting is a runner that records when it is stopped, and returns when it may.
func (d *diary) noting(name string, may <-chan struct{}) *runner {
	return newRunner(func(ctx context.Context, halted <-chan struct{}) error {
		<-ctx.Done()
		d.note(name + " stops")
		select {
		case <-may:
		case <-halted:
		}
		d.note(name + " returns")
		return nil
	})
}

func TestTheLastStageDrainsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		at := make(chan struct{})
		close(at)
		slow := make(chan struct{})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- RunOrdered(ctx, d.noting("server", at), Together(d.noting("a", slow), newRunner(untilStopped)))
		}()
		synctest.Wait()
		stop()
		synctest.Wait()
		if got, want := d.read(), []string{"a stops"}; !slices.Equal(got, want) {
			t.Errorf("while the listeners drain: got %q, want %q", got, want)
		}
		close(slow)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got, want := d.read(), []string{"a stops", "a returns", "server stops", "server returns"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestAStageThatFailsStopsTheOthersInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		at := make(chan struct{})
		close(at)
		broken := errors.New("no such queue")
		err := RunOrdered(t.Context(), d.noting("first", at), d.noting("second", at),
			newRunner(func(context.Context, <-chan struct{}) error { return broken }))
		if !errors.Is(err, broken) {
			t.Errorf("got the error %v, want %v", err, broken)
		}
		if got, want := d.read(), []string{"second stops", "second returns", "first stops", "first returns"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestASecondSignalHaltsEveryStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		never := make(chan struct{})
		ordered, err := inOrder([]Runner{d.noting("first", never), d.noting("second", never)})
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
		"a nil server":     func() error { return Run(t.Context(), HTTP(nil)) },
	} {
		if err := run(); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

// served starts an HTTP runner on a free port, whose handler waits for permission to answer.
func served(t *testing.T) (r Runner, address string, asked, may chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = l.Addr().String()
	_ = l.Close()
	asked, may = make(chan struct{}), make(chan struct{})
	return HTTP(&http.Server{Addr: address, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(asked)
			select {
			case <-may:
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, "ok")
	})}), address, asked, may
}

// get retries until the server listens, and returns its answer.
func get(t *testing.T, url string) (string, error) {
	t.Helper()
	for {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
		if err != nil {
			if strings.Contains(err.Error(), "refused") && t.Context().Err() == nil {
				continue
			}
			return "", err
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		return string(body), err
	}
}

func TestAnHTTPServerFinishesItsRequests(t *testing.T) {
	server, address, asked, may := served(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- RunOrdered(ctx, server, newRunner(untilStopped)) }()
	said := make(chan string)
	go func() {
		body, err := get(t, "http://"+address+"/slow")
		if err != nil {
			body = err.Error()
		}
		said <- body
	}()
	<-asked
	stop()
	close(may)
	if got := <-said; got != "ok" {
		t.Errorf("the request under way got %q, want ok", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAHaltedHTTPServerClosesItsConnections(t *testing.T) {
	server, address, asked, _ := served(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- server.Run(ctx) }()
	failed := make(chan error)
	go func() {
		_, err := get(t, "http://"+address+"/slow")
		failed <- err
	}()
	<-asked
	stop()
	server.Halt()
	server.Halt() // more than once is fine
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := <-failed; err == nil {
		t.Error("the request under way was answered")
	}
}

func TestAnHTTPServerThatCannotListenFailsAtOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	err = RunOrdered(t.Context(), HTTP(&http.Server{Addr: l.Addr().String()}), newRunner(untilStopped))
	if err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("got %v, want an error that names %v", err, l.Addr())
	}
}
