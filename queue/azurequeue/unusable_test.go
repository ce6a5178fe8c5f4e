package azurequeue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue/http1"
)

const loginPage = `<!DOCTYPE html><html><head><title>Guest network</title></head><body>Accept our terms</body></html>`

// foreign are 200 responses that are not message lists, each with a part of the error's text.
var foreign = map[string]struct{ contentType, body, says string }{
	"a login page":            {"text/html; charset=utf-8", loginPage, "98 bytes of text/html; charset=utf-8 starting with \"<!DOCTYPE html><html>"},
	"a page that is not XML":  {"text/html", "<html><p>Accept<br>our terms", "starting with \"<html><p>Accept"},
	"nothing":                 {"application/xml", "", "an empty body"},
	"blanks":                  {"application/xml", " \r\n", "3 bytes of application/xml starting with \"\""},
	"JSON":                    {"application/json", `{"error":"denied"}`, `starting with "{\"error\":\"denied\"}"`},
	"text":                    {"", "It works!", `9 bytes of unknown type starting with "It works!"`},
	"another document":        {"application/xml", "<EnumerationResults><Queues/></EnumerationResults>", "<EnumerationResults>"},
	"a prolog alone":          {"application/xml", `<?xml version="1.0" encoding="utf-8"?>`, "<?xml"},
	"the beginning of a list": {"application/xml", `<?xml version="1.0" encoding="utf-8"?><QueueMessagesList>`, "truncated or malformed"},
	"half of a list":          {"application/xml", `<QueueMessagesList><QueueMessage><MessageId>1</MessageId><PopReceipt>rece+ipt</PopReceipt>`, "truncated or malformed"},
	"half of an end tag":      {"application/xml", `<QueueMessagesList></QueueMessagesLis`, "truncated or malformed"},
	"a list and more":         {"application/xml", `<QueueMessagesList/>` + loginPage, "unexpected content after"},
	"a list and text":         {"application/xml", `<QueueMessagesList/>x`, "unexpected content after"},
	"two lists":               {"application/xml", `<QueueMessagesList/><QueueMessagesList/>`, "unexpected content after"},
	"a list in another":       {"application/xml", `<Answer><QueueMessagesList/></Answer>`, "a message list where none is expected"},
}

// transports returns the two HTTP clients under test.
func transports(t *testing.T) map[string]policy.Transporter {
	lean, err := http1.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lean.Close() })
	return map[string]policy.Transporter{"net/http": nil, "http1": lean}
}

// overTheWire opens a queue of a server with this handler.
func overTheWire(t *testing.T, transport policy.Transporter, handler http.HandlerFunc) *Queue {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	q, err := Open(s.URL+"/acct?"+someSAS, "orders", &Options{Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	return q
}

// A 200 that is not a message list means that another server responded. It is neither an empty
// queue nor a success: the outcome of the request is unknown.
func TestForeign200IsNotAnEmptyQueue(t *testing.T) {
	for transport, via := range transports(t) {
		for name, page := range foreign {
			q := overTheWire(t, via, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				w.Header()["Content-Type"] = []string{page.contentType}
				if page.contentType == "" {
					w.Header()["Content-Type"] = nil
				}
				w.Header().Set("x-ms-request-id", "rid-1")
				io.WriteString(w, page.body)
			})
			for op, do := range operations(q) {
				err := do(t.Context())
				if !errors.Is(err, queue.ErrOutcomeUnknown) {
					t.Errorf("%s, %s: error for %s: got %v, want ErrOutcomeUnknown", transport, op, name, err)
					continue
				}
				known := written(t, err, op)
				if known.Status != 200 || known.RequestID != "rid-1" {
					t.Errorf("%s, %s: error for %s: got status %d and request id %q, want 200 and rid-1", transport, op, name, known.Status, known.RequestID)
				}
				says := page.says
				switch list := op == "dequeue" || op == "peek"; { // the response to an enqueue is a 201
				case !list && strings.Contains(page.body, "<QueueMessagesList"):
					says = "a message list where none is expected"
				case !list && page.body == "":
					says = "" // the service sends no body either
				}
				if !strings.Contains(err.Error(), says) {
					t.Errorf("%s, %s: error for %s: got %v, want %q in it", transport, op, name, err, says)
				}
			}
		}
	}
}

// A response that lacks a required part is an error with its status and request id.
func TestIncompleteResponseIsOutcomeUnknown(t *testing.T) {
	for op, c := range map[string]struct {
		status int
		body   string
	}{
		"enqueue":    {201, "<QueueMessagesList/>"},
		"update":     {204, ""},
		"properties": {200, ""},
	} {
		err := operations(openCanned(t, responding(c.status, c.body)))[op](t.Context())
		known := written(t, err, op)
		if !errors.Is(err, queue.ErrOutcomeUnknown) || known.Status != c.status || known.RequestID != "rid-1" {
			t.Errorf("%s: got %v, want ErrOutcomeUnknown with status %d and request id rid-1", op, err, c.status)
		}
	}
}

// A transport that is not net/http's may return a response without a body, or none.
func TestNoBodyAndNoResponse(t *testing.T) {
	for _, status := range []int{200, 201, 204, 404} {
		q := openCanned(t, func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Request: r}, nil
		})
		if _, err := q.Dequeue(t.Context(), 1, time.Second); err == nil {
			t.Errorf("dequeue with status %d: got no error, want one", status)
		}
		if _, err := q.Enqueue(t.Context(), "x", nil); err == nil {
			t.Errorf("enqueue with status %d: got no error, want one", status)
		}
		if err := q.Delete(t.Context(), someLease); (err == nil) != (status == 204) {
			t.Errorf("delete with status %d: got the error %v, want none if it is 204", status, err)
		}
	}
	q := openCanned(t, func(*http.Request) (*http.Response, error) { return nil, nil })
	for op, do := range operations(q) {
		if err := do(t.Context()); !errors.Is(err, queue.ErrOutcomeUnknown) {
			t.Errorf("%s without a response: got %v, want ErrOutcomeUnknown", op, err)
		}
	}
}

// A foreign response may repeat the request, secrets included.
func TestForeignResponsesAreQuotedWithoutSecrets(t *testing.T) {
	for _, status := range []int{200, 201, 302, 403, 502} {
		q := openCanned(t, func(r *http.Request) (*http.Response, error) {
			echo := fmt.Sprintf("%s %s %s\n\x1b[31m SharedKey acct:S3cret== Bearer S3cret.token", r.Method, r.URL, someReceipt)
			return responding(status, echo, "Content-Type", "text/plain; sig=S3cret", "Location", "https://login.example/?to="+r.URL.String())(r)
		})
		for op, do := range operations(q) {
			err := do(t.Context())
			if err == nil {
				continue // a 201 to create
			}
			if written(t, err, op); strings.Contains(err.Error(), "\x1b") {
				t.Errorf("%s: got a control character in %q, want none", op, err)
			}
			if len(err.Error()) > 600 {
				t.Errorf("%s: length of the error: got %d bytes, want at most 600: %v", op, len(err.Error()), err)
			}
			if status == 302 && !strings.Contains(err.Error(), "login.example") {
				t.Errorf("%s: got %v, want the host of the redirect", op, err)
			}
		}
	}
}

// A listener that has received nothing but a login page has not worked yet: as at the start, a
// refused authorization ends it.
func TestALoginPageDoesNotCountAsWorked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		polls := 0
		q := openCanned(t, func(r *http.Request) (*http.Response, error) {
			if polls++; polls <= 3 {
				return responding(200, loginPage, "Content-Type", "text/html")(r)
			}
			return responding(403, "<Error><Code>AuthenticationFailed</Code><Message>No.</Message></Error>", "x-ms-error-code", "AuthenticationFailed")(r)
		})
		reported := 0
		l := listener.New(q, func(context.Context, *listener.Message[string]) error { return nil }, &listener.Options[string]{
			Codec: codec.Text(), Logger: slog.New(slog.DiscardHandler),
			OnError: func(err error) {
				if strings.Contains(err.Error(), "<!DOCTYPE html>") {
					reported++
				}
			},
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := l.Run(ctx); !errors.Is(err, queue.ErrUnauthorized) {
			t.Errorf("Run: got %v after %d polls, want ErrUnauthorized", err, polls)
		}
		if reported != 3 {
			t.Errorf("reports of the page: got %d, want 3", reported)
		}
	})
}

// A listener behind a login page backs off, and works once the network does.
func TestAListenerWaitsOutALoginPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		polls := 0
		q := openCanned(t, func(r *http.Request) (*http.Response, error) {
			if time.Since(begin) < 10*time.Minute {
				polls++
				return responding(200, "", "Content-Type", "text/html")(r)
			}
			return responding(200, "<QueueMessagesList/>")(r)
		})
		l := listener.New(q, func(context.Context, *listener.Message[string]) error { return nil },
			&listener.Options[string]{Codec: codec.Text(), Logger: slog.New(slog.DiscardHandler), OnError: func(error) {}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := l.Run(ctx); err != nil {
			t.Errorf("Run: got the error %v, want none", err)
		}
		if polls > 40 { // one a second would be 600
			t.Errorf("polls in ten minutes behind a login page: got %d, want at most 40", polls)
		}
	})
}

// No client follows a redirect, not even the caller's: credentials are for the service alone, and
// another host's page is not its response.
func TestARedirectIsNotFollowedByTheCallersClientEither(t *testing.T) {
	var redirected atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		redirected.Add(1)
		w.WriteHeader(http.StatusNoContent)
	}))
	defer other.Close()
	own := &http.Client{Transport: &http.Transport{}}
	all := transports(t)
	all["the caller's client"] = own
	for name, via := range all {
		for _, status := range []int{301, 302, 303, 307, 308} {
			q := overTheWire(t, via, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				http.Redirect(w, r, other.URL+r.URL.Path, status)
			})
			for op, do := range operations(q) {
				if err := do(t.Context()); !errors.Is(err, queue.ErrOutcomeUnknown) {
					t.Errorf("%s, %s: error for status %d: got %v, want ErrOutcomeUnknown", name, op, status, err)
				}
			}
		}
	}
	if n := redirected.Load(); n != 0 {
		t.Errorf("requests to the redirect's target: got %d, want 0", n)
	}
	if own.CheckRedirect != nil {
		t.Error("CheckRedirect of the caller's client: got a function, want nil as before")
	}
	own.CloseIdleConnections()
}

// The CheckRedirect of the caller's client is called.
func TestTheCallersCheckRedirectIsKept(t *testing.T) {
	asked := 0
	client := &http.Client{Transport: &http.Transport{}, CheckRedirect: func(*http.Request, []*http.Request) error {
		asked++
		return http.ErrUseLastResponse
	}}
	defer client.CloseIdleConnections()
	q := overTheWire(t, client, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) })
	if err := q.Clear(t.Context()); err == nil || asked != 1 {
		t.Errorf("calls of CheckRedirect: got %d, %v; want 1 and an error", asked, err)
	}
}
