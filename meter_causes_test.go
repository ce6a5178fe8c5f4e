package millrace_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue/metered"
	"github.com/millrace/millrace/wakeup"
)

type job struct {
	Does string
	N    int
}

// handle does what the job says.
func handle(_ context.Context, m *listener.Message[job]) error {
	switch m.Body.Does {
	case "long":
		time.Sleep(100 * time.Second)
	case "save":
		return m.Save(context.Background(), job{"done", m.Body.N + 1})
	case "retry":
		if m.Attempt == 1 {
			return errors.New("not yet")
		}
	case "discard":
		return listener.Discard(errors.New("too old"))
	case "poison":
		return listener.Poison(errors.New("no address"))
	}
	return nil
}

func workerOptions() *listener.Options[job] {
	return &listener.Options[job]{
		Create: true, Metadata: listener.WriteMetadata, Logger: slog.New(slog.DiscardHandler),
		RetryDelay: func(int, error) time.Duration { return time.Second },
	}
}

// work lets a listener, a producer and the tools for poison send requests of every cause, and returns
// the listener's state and counts.
func work(t *testing.T, b *bundle) listener.State {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	jobs := producer.New[job](b.queue, &producer.Options[job]{Create: true, Timeout: time.Hour, Wakeups: new(wakeup.Bus), WakeupDepth: 500})
	send := func(does string, n int) {
		for i := range n {
			_, err := jobs.Send(ctx, job{does, i}, nil)
			must(err)
		}
	}
	l := listener.New(b.queue, handle, workerOptions())
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- l.Run(running) }()
	time.Sleep(time.Minute) // it finds no queue and creates it
	later, err := jobs.Send(ctx, job{}, &producer.SendOptions{Delay: time.Hour})
	must(err)
	_ = jobs.Cancel(ctx, later) // with faults it may be too late to know

	send("lost", 1) // another worker takes it twice and dies
	for range 2 {
		_, err := b.direct.Dequeue(ctx, 32, time.Second)
		must(err)
		time.Sleep(2 * time.Second)
	}
	for _, does := range []string{"quick", "save", "retry", "discard", "poison"} {
		send(does, 20)
	}
	send("quick", 1000)
	for range 30 {
		send("long", 6)
		time.Sleep(2 * time.Minute)
	}
	stop()
	must(<-ended)

	retried := func(f func() error) { // these give up sooner than a listener does
		t.Helper()
		var err error
		for range 20 {
			if err = f(); err == nil {
				return
			}
			time.Sleep(time.Minute)
		}
		t.Error(err)
	}
	retried(func() (err error) {
		for _, err = range poison.List(ctx, b.queue, nil) {
			if err != nil {
				return err
			}
		}
		return nil
	})
	retried(func() error {
		_, err := poison.Redrive(ctx, b.queue, &poison.Options{Max: 10})
		return err
	})
	time.Sleep(time.Minute)
	retried(func() error {
		_, err := poison.Purge(ctx, b.queue, nil)
		return err
	})
	return l.State()
}

// C-01: listener, dispatcher, producer and poison say of every request why they send it.
func TestEveryRequestHasACause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, "")
		st := work(t, b)
		counts := b.meter.Counts()
		t.Log(counts)
		sent := map[string]int64{}
		for _, line := range counts {
			sent[fmt.Sprintf("%v to %v", line.Operation, line.Cause)] = line.Requests
		}
		for _, want := range []string{
			"enqueue to send", "enqueue to poison", "enqueue to redrive",
			"dequeue to fetch", "dequeue to redrive", "dequeue to purge",
			"peek to browse",
			"update to renew", "update to save", "update to start", "update to giveback", "update to redrive",
			"delete to delete", "delete to poison", "delete to cancel", "delete to redrive", "delete to purge",
			"properties to depth", "properties to metadata", "properties to redrive", "properties to purge",
			"setmetadata to metadata",
			"create to create", "create to poison",
		} {
			if sent[want] == 0 {
				t.Errorf("requests to %s: got none", want)
			}
			delete(sent, want)
		}
		if len(sent) > 0 {
			t.Errorf("got these requests too: %v", sent)
		}
		checkServer(t, b)
		checkState(t, st)
		c := st.ByCause
		if c["fetch"] < st.Polls || c["renew"]+c["save"] != st.Renewed || c["delete"] != st.Outcomes[listener.Deleted]+st.Outcomes[listener.Discarded] ||
			c["save"] != 20 || c["start"] != 1 || c["unknown"] != 0 {
			t.Errorf("the state %+v does not agree with itself", st)
		}
	})
}

// C-01: a copy to a poison queue has its cause even if the caller sets none. The first copy finds no
// queue and creates it, which is not a failure.
func TestTheFirstCopyToAPoisonQueueCountsNoFailure(t *testing.T) {
	b := setup(t, "")
	if err := (poisonrecord.Policy{Queue: b.queue}).Copy(t.Context(), poisonrecord.Record{ID: "1", Text: "text"}); err != nil {
		t.Fatal(err)
	}
	if got, want := b.meter.Counts().String(), "3 poison"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// checkState compares the requests of a listener with their sum by cause.
func checkState(t *testing.T, st listener.State) {
	t.Helper()
	var sum int64
	for _, n := range st.ByCause {
		sum += n
	}
	if sum != st.Requests || sum == 0 {
		t.Errorf("the causes of %+v add up to %d, want all requests", st, sum)
	}
}

// checkServer compares the meter with what the server counted.
func checkServer(t *testing.T, b *bundle) {
	t.Helper()
	synctest.Wait()
	counts, server := b.meter.Counts(), b.server.Counts()
	for o, name := range map[metered.Operation]emulator.Operation{
		metered.Enqueue: emulator.PutMessage, metered.Dequeue: emulator.GetMessages, metered.Peek: emulator.PeekMessages,
		metered.Update: emulator.UpdateMessage, metered.Delete: emulator.DeleteMessage, metered.Properties: emulator.GetQueueMetadata,
		metered.Create: emulator.CreateQueue, metered.SetMetadata: emulator.SetQueueMetadata,
	} {
		if got, want := counts.Operation(o).Requests, server.Operations[name]; got != want {
			t.Errorf("%v: got %d requests, want the server's %d", o, got, want)
		}
	}
	total := counts.Total()
	if total.Requests != server.Requests() || total.Throttled != server.Busy {
		t.Errorf("got %d requests, %d throttled, want the server's %d and %d", total.Requests, total.Throttled, server.Requests(), server.Busy)
	}
}

// C-01: retries are requests too. Under faults the meter counts exactly what the server does, and knows
// what was repeated and throttled.
func TestCountsUnderFaultsAreTheServers(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many worlds")
	}
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, "*:503@5% *:500@3% *:408@2% *:reset@2% *:drop@2% *:delay=100ms@5%")
		st := work(t, b)
		counts := b.meter.Counts()
		t.Log(counts)
		checkServer(t, b)
		checkState(t, st)
		for _, line := range counts {
			if line.Cause == metered.CauseUnknown {
				t.Errorf("got %+v, want a cause", line)
			}
		}
		if total := counts.Total(); total.Repeated == 0 || total.Throttled == 0 || total.Failed == 0 || total.Repeated > total.Throttled+total.Failed {
			t.Errorf("got %+v, want some repeated, throttled and failed, and none repeated that did not fail", total)
		}
	})
}
