package main

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/millracetest"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard)
	goleak.VerifyTestMain(m)
}

// deleteNotifier reports which messages were deleted.
type deleteNotifier struct {
	queue.Queue
	deleted chan queue.ID
}

func (q deleteNotifier) Delete(ctx context.Context, l queue.Lease) error {
	err := q.Queue.Delete(ctx, l)
	q.deleted <- l.ID
	return err
}

func TestPostedLettersAreDelivered(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	address := make(chan net.Addr, 1)
	server := &http.Server{Addr: "localhost:0", BaseContext: func(l net.Listener) context.Context {
		address <- l.Addr()
		return t.Context()
	}}
	ended := make(chan error, 1)
	q := deleteNotifier{millracetest.Queue(t), make(chan queue.ID, 10)}
	go func() { ended <- run(ctx, q, server) }()
	for i, text := range []string{"hi", strings.Repeat("long ", 20_000)} {
		addr := <-address
		body := strings.NewReader(`{"To":"bob","Text":"` + text + `"}`)
		response, err := http.Post("http://"+addr.String()+"/letters", "application/json", body)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if want := []int{202, 413}[i]; response.StatusCode != want {
			t.Errorf("status: got %d, want %d", response.StatusCode, want)
		}
		address <- addr
	}
	<-q.deleted
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// unavailableQueue is a queue whose service cannot be reached.
type unavailableQueue struct{ queue.Queue }

func (unavailableQueue) Enqueue(context.Context, string, *queue.EnqueueOptions) (queue.Message, error) {
	return queue.Message{}, queue.ErrUnavailable
}

func TestEachFailureHasItsStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := millracetest.Queue(t)
		bob, eve := `{"To":"bob","Text":"hi"}`, `{"To":"eve","Text":"later"}`
		for _, c := range []struct {
			name, query, body string
			queue             queue.Queue
			want              int
		}{
			{"a letter", "", bob, q, 202},
			{"a letter for later", "?delay=10m", eve, q, 202},
			{"an invalid letter", "", "hi", q, 400},
			{"an invalid delay", "?delay=10", bob, q, 400},
			{"a delay of more than seven days", "?delay=200h", bob, q, 400},
			{"a letter larger than a message", "", `{"Text":"` + strings.Repeat("x", queue.MaxText) + `"}`, q, 413},
			{"a letter larger than the request limit", "", `{"Text":"` + strings.Repeat("x", 1<<20) + `"}`, q, 413},
			{"an outage", "", bob, unavailableQueue{q}, 503},
		} {
			response := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), "POST", "/letters"+c.query, strings.NewReader(c.body))
			send(producer.New[Letter](c.queue, nil))(response, r)
			if response.Code != c.want {
				t.Errorf("%s: got %d %s, want %d", c.name, response.Code, response.Body, c.want)
			}
		}
		millracetest.RequireEnqueued(t, q, Letter{"bob", "hi"}, Letter{"eve", "later"})
		if visible, err := q.Peek(t.Context(), 2); err != nil || len(visible) != 1 {
			t.Errorf("visible letters at first: got %d, error %v; want 1", len(visible), err)
		}
		time.Sleep(10 * time.Minute)
		if visible, err := q.Peek(t.Context(), 2); err != nil || len(visible) != 2 {
			t.Errorf("visible letters after ten minutes: got %d, error %v; want 2", len(visible), err)
		}
	})
}
