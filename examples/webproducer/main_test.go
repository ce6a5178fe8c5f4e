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

// told tells which messages were deleted.
type told struct {
	queue.Queue
	deleted chan queue.ID
}

func (q told) Delete(ctx context.Context, l queue.Lease) error {
	err := q.Queue.Delete(ctx, l)
	q.deleted <- l.ID
	return err
}

func TestWhatIsPostedIsDelivered(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	at := make(chan net.Addr, 1)
	server := &http.Server{Addr: "localhost:0", BaseContext: func(l net.Listener) context.Context {
		at <- l.Addr()
		return t.Context()
	}}
	ended := make(chan error, 1)
	q := told{millracetest.Queue(t), make(chan queue.ID, 10)}
	go func() { ended <- run(ctx, q, server) }()
	for i, text := range []string{"hi", strings.Repeat("long ", 20_000)} {
		addr := <-at
		answer, err := http.Post("http://"+addr.String()+"/letters", "application/json", strings.NewReader(`{"To":"bob","Text":"`+text+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if want := []int{202, 413}[i]; answer.StatusCode != want {
			t.Errorf("got the status %d, want %d", answer.StatusCode, want)
		}
		at <- addr
	}
	<-q.deleted
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// away is a queue whose service cannot be reached.
type away struct{ queue.Queue }

func (away) Enqueue(context.Context, string, *queue.EnqueueOptions) (queue.Message, error) {
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
			{"no letter", "", "hi", q, 400},
			{"no duration", "?delay=10", bob, q, 400},
			{"a delay that the service does not have", "?delay=200h", bob, q, 400},
			{"a letter over a message", "", `{"Text":"` + strings.Repeat("x", queue.MaxText) + `"}`, q, 413},
			{"a letter over all bounds", "", `{"Text":"` + strings.Repeat("x", 1<<20) + `"}`, q, 413},
			{"an outage", "", bob, away{q}, 503},
		} {
			answer := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), "POST", "/letters"+c.query, strings.NewReader(c.body))
			send(producer.New[Letter](c.queue, nil))(answer, r)
			if answer.Code != c.want {
				t.Errorf("%s: got %d %s, want %d", c.name, answer.Code, answer.Body, c.want)
			}
		}
		millracetest.RequireEnqueued(t, q, Letter{"bob", "hi"}, Letter{"eve", "later"})
		if visible, err := q.Peek(t.Context(), 2); err != nil || len(visible) != 1 {
			t.Errorf("%d letters are visible at first, %v; want one", len(visible), err)
		}
		time.Sleep(10 * time.Minute)
		if visible, err := q.Peek(t.Context(), 2); err != nil || len(visible) != 2 {
			t.Errorf("%d letters are visible after ten minutes, %v; want both", len(visible), err)
		}
	})
}
