package serverwakeup_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/wakeup"
	"github.com/millrace/millrace/wakeup/serverwakeup"
	"github.com/millrace/millrace/wakeup/wakeuptest"
)

// world is the engine behind a source, and who works there: events are published by putting messages, and
// whoever hears one dequeues.
type world struct {
	wakeup.Source
	engine *localqueue.Engine
}

// take dequeues and deletes everything.
func (w *world) take(name queue.Name) {
	ctx, q := context.Background(), w.engine.Queue(name)
	for {
		got, err := q.Dequeue(ctx, queue.MaxBatch, time.Minute)
		if err != nil || len(got) == 0 {
			return // the queue is not there yet
		}
		for _, m := range got {
			_ = q.Delete(ctx, m.Lease) // another one may have taken it
		}
	}
}

func (w *world) Subscribe(name queue.Name, event func(q queue.Name, bytes int64, due time.Time), listening func(bool)) (wakeup.Subscription, error) {
	if err := w.engine.Queue(name).Create(context.Background(), nil); err != nil {
		return nil, err
	}
	return w.Source.Subscribe(name, func(q queue.Name, bytes int64, due time.Time) {
		w.take(name)
		event(q, bytes, due)
	}, listening)
}

// Publish puts a message of that many bytes.
func (w *world) Publish(ctx context.Context, name queue.Name, bytes int64, _ time.Time) error {
	w.take(name)
	if bytes > queue.MaxText {
		bytes = 8191 // any that no test waits for
	}
	q := w.engine.Queue(name)
	if err := q.Create(ctx, nil); err != nil {
		return err
	}
	_, err := q.Enqueue(ctx, strings.Repeat("x", int(bytes)), nil)
	return err
}

func processes(t *testing.T, n int, location string, o *serverwakeup.Options, engine *localqueue.Engine) []wakeuptest.Process {
	var all []wakeuptest.Process
	for range n {
		s, err := serverwakeup.Open(location, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		w := &world{s, engine}
		all = append(all, wakeuptest.Process{Source: w, Publisher: w})
	}
	return all
}

func TestConformanceInProcess(t *testing.T) {
	wakeuptest.Run(t, wakeuptest.Harness{Between: true, SeesQueue: true, Account: emulator.DevelopmentAccount, Bubble: true,
		Open: func(t *testing.T, n int) []wakeuptest.Process {
			engine := must(localqueue.New(nil))
			server := must(emulator.New(engine, nil))
			return processes(t, n, server.ConnectionString(), &serverwakeup.Options{Transport: &http.Client{Transport: server}}, engine)
		}})
}

// The engine's own source has one subscriber for each event, in whichever process of the suite.
func TestConformanceOfTheEnginesSource(t *testing.T) {
	for name, bubble := range map[string]bool{"bubble": true, "real time": false} {
		t.Run(name, func(t *testing.T) {
			wakeuptest.Run(t, wakeuptest.Harness{Between: true, OneHears: true, SeesQueue: true, Bubble: bubble,
				Open: func(_ *testing.T, n int) []wakeuptest.Process {
					engine := must(localqueue.New(nil))
					var all []wakeuptest.Process
					for range n {
						w := &world{engine, engine}
						all = append(all, wakeuptest.Process{Source: w, Publisher: w})
					}
					return all
				}})
		})
	}
}

func TestConformanceOverSockets(t *testing.T) {
	wakeuptest.Run(t, wakeuptest.Harness{Between: true, SeesQueue: true, Account: emulator.DevelopmentAccount,
		Open: func(t *testing.T, n int) []wakeuptest.Process {
			engine := must(localqueue.New(nil))
			endpoint, err := must(emulator.New(engine, nil)).Start("")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := endpoint.Close(); err != nil {
					t.Error(err)
				}
			})
			return processes(t, n, endpoint.ConnectionString(), nil, engine)
		}})
}
