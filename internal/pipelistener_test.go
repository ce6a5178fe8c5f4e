package internal_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/internal/pipelistener"
)

// TestRequestsAreServedInABubble: and the server ends when it is closed.
func TestRequestsAreServedInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := pipelistener.New()
		s := http.Server{Handler: http.NotFoundHandler()}
		done := make(chan error, 1)
		go func() { done <- s.Serve(l) }()
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }
		transport := &http.Transport{DialContext: dial}
		r, err := (&http.Client{Transport: transport}).Get("http://" + l.Addr().String())
		if err != nil || r.StatusCode != http.StatusNotFound {
			t.Fatalf("got %v, %v, want status 404", r, err)
		}
		if err := errors.Join(r.Body.Close(), s.Close()); err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("got %v, want that the server was closed", err)
		}
	})
}

// TestNobodyWaitsForAClosedListener: nor beyond the end of a context.
func TestNobodyWaitsForAClosedListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := pipelistener.New()
		reason := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(reason)
		if c, err := l.Dial(ctx); c != nil || !errors.Is(err, reason) {
			t.Errorf("dial: got %v, %v, want the cause of the end", c, err)
		}
		waiting := make(chan error, 2)
		go func() { _, err := l.Dial(t.Context()); waiting <- err }()
		synctest.Wait()
		if err := errors.Join(l.Close(), l.Close()); err != nil {
			t.Errorf("close twice: got %v", err)
		}
		go func() { _, err := l.Accept(); waiting <- err }()
		for range 2 {
			if err := <-waiting; !errors.Is(err, net.ErrClosed) {
				t.Errorf("got %v, want net.ErrClosed", err)
			}
		}
	})
}
