package emulator_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/azurequeue/http1"
	"github.com/millrace/millrace/queue/localqueue"
)

// allFaults has every kind of fault at a high rate.
const allFaults = "*:503@7%,get:500@5%,*:408@1/23,*:reset@5%,*:drop@7%,*:duplicate@6%,*:delay=1ms@10%"

// TestNoAcceptedMessageIsLost injects faults into a client's requests. Each accepted message
// must be handled or still be in the queue, and no other message may appear.
// TestLedgerFindsLostMessages shows that the check detects a client that deletes first.
func TestNoAcceptedMessageIsLost(t *testing.T) {
	t.Run("in process", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, engine := faultyServer(t)
			reportLost(t, lostMessages(t, s, engine, s.ConnectionString(), &http.Client{Transport: s}, consume))
		})
	})
	if testing.Short() {
		return // over sockets it takes seconds
	}
	t.Run("net/http", func(t *testing.T) {
		s, engine := faultyServer(t)
		reportLost(t, lostMessages(t, s, engine, start(t, s).ConnectionString(), nil, consume))
	})
	t.Run("http1", func(t *testing.T) {
		s, engine := faultyServer(t)
		location := start(t, s).ConnectionString()
		transport, err := http1.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := transport.Close(); err != nil {
				t.Error(err)
			}
		}()
		reportLost(t, lostMessages(t, s, engine, location, transport, consume))
	})
}

func TestLedgerFindsLostMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, engine := faultyServer(t)
		lost := lostMessages(t, s, engine, s.ConnectionString(), &http.Client{Transport: s}, deleteFirst)
		if len(lost) == 0 {
			t.Error("a client that deletes before it works has lost nothing: the check detects nothing")
		}
	})
}

func reportLost(t *testing.T, lost []string) {
	t.Helper()
	for _, text := range lost {
		t.Errorf("%s was accepted, and is neither handled nor in the queue", text)
	}
}

func faultyServer(t *testing.T) (*emulator.Server, *localqueue.Engine) {
	t.Helper()
	rules, err := emulator.ParseFaults(allFaults)
	if err != nil {
		t.Fatal(err)
	}
	engine := must(localqueue.New(nil))
	return must(emulator.New(engine, &emulator.Options{Faults: &emulator.Faults{Seed: 1, Rules: rules}})), engine
}

func start(t *testing.T, s *emulator.Server) *emulator.Endpoint {
	t.Helper()
	e, err := s.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// lease is the shortest that the service has, so that messages which a fault left hidden are soon visible.
const lease = time.Second

type transporter interface {
	Do(*http.Request) (*http.Response, error)
}

// lostMessages returns the messages that were accepted and lost.
func lostMessages(t *testing.T, s *emulator.Server, engine *localqueue.Engine, location string, via transporter,
	consume func(*testing.T, queue.Queue) map[queue.ID]string) (lost []string) {
	t.Helper()
	o := azurequeue.Options{}
	if via != nil {
		o.Transport = via
	}
	q, err := azurequeue.Open(location, "orders", &o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}()
	below := engine.Queue(queue.Name{Account: emulator.DevelopmentAccount, Queue: "orders"})
	if err := below.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	accepted, tried := produce(t, q)
	handled := consume(t, q)
	left := drain(t, below)
	for text, id := range accepted {
		if handled[id] != text && left[id] != text {
			lost = append(lost, text)
		}
	}
	for _, some := range []map[queue.ID]string{handled, left} {
		for id, text := range some {
			if !slices.Contains(tried, text) {
				t.Errorf("message %s: got the text %q, which was not sent", id, text)
			}
		}
	}
	if counts := s.Counts(); len(counts.Faults) != 7 || len(accepted) == 0 || len(handled) == 0 || len(left) == 0 {
		t.Errorf("got %d messages accepted, %d handled and %d left; want some of each and every kind of fault\n%s", len(accepted), len(handled), len(left), counts)
	}
	return lost
}

// produce sends messages, each once, and returns all texts and the ids of the accepted messages.
func produce(t *testing.T, q queue.Queue) (accepted map[string]queue.ID, tried []string) {
	accepted = map[string]queue.ID{}
	for i := range 200 {
		text := "order " + strconv.Itoa(i)
		tried = append(tried, text)
		if m, err := q.Enqueue(t.Context(), text, nil); err == nil {
			accepted[text] = m.ID
		} else {
			checkError(t, err)
		}
	}
	return accepted, tried
}

// consume handles most of the messages and leaves the rest.
func consume(t *testing.T, q queue.Queue) map[queue.ID]string {
	handled := map[queue.ID]string{}
	for range 40 {
		found, err := q.Dequeue(t.Context(), 4, lease)
		checkError(t, err)
		for _, m := range found {
			l, err := q.Update(t.Context(), m.Lease, m.Text, lease)
			if checkError(t, err); err != nil {
				continue // the lease may be lost
			}
			handled[m.ID] = m.Text // the work, which may be repeated
			checkError(t, q.Delete(t.Context(), l))
		}
	}
	return handled
}

// deleteFirst deletes each message before it handles it. If the response to a delete is lost, the
// message is gone without having been handled.
func deleteFirst(t *testing.T, q queue.Queue) map[queue.ID]string {
	handled := map[queue.ID]string{}
	for range 40 {
		found, err := q.Dequeue(t.Context(), 4, lease)
		checkError(t, err)
		for _, m := range found {
			if err := q.Delete(t.Context(), m.Lease); err == nil {
				handled[m.ID] = m.Text
			}
		}
	}
	return handled
}

// drain takes the remaining messages from the engine, without faults, as their leases end.
func drain(t *testing.T, below queue.Manager) map[queue.ID]string {
	left := map[queue.ID]string{}
	azuritetest.Until(t, "all leases have ended and every message was dequeued", func() bool {
		found, err := below.Dequeue(t.Context(), queue.MaxBatch, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range found {
			left[m.ID] = m.Text
		}
		p, err := below.Properties(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return p.Depth == int64(len(left))
	})
	return left
}

// checkError checks that an injected error contains no secret.
func checkError(t *testing.T, err error) {
	t.Helper()
	if err != nil && (strings.Contains(err.Error(), "popreceipt") || errors.Is(err, context.Canceled)) {
		t.Error(err)
	}
}
