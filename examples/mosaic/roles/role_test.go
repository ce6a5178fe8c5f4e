package roles

import (
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
)

func TestASetOfRolesHasThoseInIt(t *testing.T) {
	if !All.Has(Processor) || Client.Has(All) || Controller.Has(Client) {
		t.Error("Has is wrong")
	}
}

// player opens a process of some roles.
func (w *world) player(r Roles, handled func(Step)) *process {
	w.t.Helper()
	p := &process{log: &lockedBuffer{}}
	open := func(name string) (queue.Queue, error) { return w.queue(name), nil }
	var err error
	p.System, err = Open(open, w.store, Options{Roles: r, Handled: handled, Processors: 2, Logger: slog.New(slog.NewTextHandler(p.log, nil))})
	if err != nil {
		w.t.Fatal(err)
	}
	w.start(p)
	return p
}

// The roles work in processes of their own, each of which handles only its own messages. The client sees how far
// they are, however long that takes.
func TestRolesInProcessesOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		client := w.player(Client, nil)
		c := w.submit(client)
		waits := func(requested bool, stored int) {
			t.Helper()
			time.Sleep(time.Hour)
			_, p, err := c.look(t.Context())
			if err != nil || p.Requested != requested || len(p.Stored) != stored {
				t.Errorf("progress: got %+v, %v; want requested %v and %d slices stored", p, err, requested, stored)
			}
		}
		waits(false, 0)
		var mu sync.Mutex
		var steps []Step
		note := func(s Step) {
			mu.Lock()
			defer mu.Unlock()
			steps = append(steps, s)
		}
		controller := w.player(Controller, note)
		waits(true, 0)
		controller.end()
		processor := w.player(Processor, note)
		waits(true, testSlices)
		controller = w.player(Controller, note)
		if err := c.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.check(c)
		for _, p := range []*process{client, controller, processor} {
			p.end()
		}
		seen := map[Step]int{}
		for _, s := range steps {
			seen[s]++
		}
		if seen[Step{Controller, c.ID, 0, testSlices}] != 1 || len(seen) != 1+testSlices {
			t.Errorf("steps: got %v, want one of the controller and %d of the processor", seen, testSlices)
		}
		for i := range testSlices {
			if seen[Step{Processor, c.ID, i, testSlices}] != 1 {
				t.Errorf("steps: got %v, want slice %d once", seen, i)
			}
		}
	})
}
