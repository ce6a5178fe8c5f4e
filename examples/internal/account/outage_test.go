package account

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/listener"
)

func TestAnOutageIsOneLineAndSoIsItsEnd(t *testing.T) {
	refused, ok, busy := errors.New("connection refused"), http.StatusOK, http.StatusServiceUnavailable
	stopped, stop := context.WithCancelCause(t.Context())
	stop(listener.ErrStopping)
	for name, c := range map[string]struct {
		requests []any // results, 0.4 s apart
		want     []string
	}{
		"none":              {[]any{ok, http.StatusNotFound, ok}, nil},
		"short":             {[]any{ok, refused, busy, ok, refused, ok}, nil},
		"at the start":      {[]any{refused, refused, refused, refused, ok, ok}, nil},
		"down":              {[]any{ok, refused, refused, refused, refused, refused, refused}, []string{"does not answer, trying again"}},
		"down and up":       {[]any{ok, refused, refused, refused, refused, refused, ok, ok}, []string{"does not answer, trying again", "answers again"}},
		"twice":             {[]any{ok, refused, refused, refused, refused, ok, refused, refused, refused, refused, ok}, []string{"does not answer", "answers again", "does not answer", "answers again"}},
		"busy":              {[]any{ok, busy, busy, busy, busy, http.StatusNotFound}, []string{"busy, trying again", "answers again"}},
		"stopped by us":     {[]any{ok, stopped, stopped, stopped, stopped, stopped}, nil},
		"does not end soon": {[]any{ok, context.DeadlineExceeded, context.DeadlineExceeded, context.DeadlineExceeded, context.DeadlineExceeded}, []string{"does not answer"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				o := &outage{server: "queue server", logger: plainlog.New(&out)}
				for _, result := range c.requests {
					switch r := result.(type) {
					case context.Context:
						o.note(r, nil, context.Cause(r))
					case error:
						o.note(t.Context(), nil, r)
					case int:
						o.note(t.Context(), &http.Response{StatusCode: r}, nil)
					}
					time.Sleep(400 * time.Millisecond)
				}
				lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
				if out.Len() == 0 {
					lines = nil
				}
				if len(lines) != len(c.want) {
					t.Fatalf("lines: got %q, want %q", lines, c.want)
				}
				for i, want := range c.want {
					if !strings.Contains(lines[i], want) || !strings.HasPrefix(lines[i], "the queue server ") {
						t.Errorf("line %d: got %q, want %q", i, lines[i], want)
					}
				}
			})
		})
	}
}

// A server in this process that answers late is no outage: the machine is busy.
func TestOnlyAServerElsewhereHasOutages(t *testing.T) {
	for name, c := range map[string]struct {
		endpoint *emulator.Endpoint
		want     string
	}{
		"in this process": {&emulator.Endpoint{}, ""},
		"elsewhere":       {nil, "the queue server does not answer, trying again\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			a := &Account{endpoint: c.endpoint, client: &http.Client{Transport: refusing{}}}
			a.outage = outage{server: "queue server", logger: plainlog.New(&out), answered: true, since: time.Now().Add(-2 * longOutage)}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/", nil)
			if err != nil {
				t.Fatal(err)
			}
			if response, err := a.Do(r); err == nil {
				_ = response.Body.Close()
				t.Error("request: got an answer, want none")
			}
			if out.String() != c.want {
				t.Errorf("stderr: got %q, want %q", out.String(), c.want)
			}
		})
	}
}

// refusing is a transport to a server that does not answer.
type refusing struct{}

func (refusing) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("connection refused")
}
