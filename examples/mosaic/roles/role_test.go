package roles

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/queue"
)

func TestRolesHaveNames(t *testing.T) {
	for r, want := range map[Roles]string{0: "", Client: "client", Controller: "controller", Processor: "processor", All: "client, controller, processor", Controller | Client: "client, controller"} {
		if r.String() != want {
			t.Errorf("%d: got %q, want %q", r, r, want)
		}
	}
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
	p.System, err = Open(w.t.Context(), open, w.store, &Options{Roles: r, Handled: handled, Processors: 2, Logger: slog.New(slog.NewTextHandler(p.log, nil))})
	if err != nil {
		w.t.Fatal(err)
	}
	w.start(p)
	return p
}

// The roles work in processes of their own, each of which handles only its own messages. The client says which
// role it waits for, however long that takes.
func TestRolesInProcessesOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		client := w.player(Client, nil)
		c := w.submit(client)
		waits := func(want Roles) {
			t.Helper()
			time.Sleep(time.Hour)
			_, p, err := c.look(t.Context())
			if err != nil || p.WaitsFor() != want {
				t.Errorf("waits for: got %v, %v; want %v", p.WaitsFor(), err, want)
			}
		}
		waits(Controller)
		var mu sync.Mutex
		var steps []Step
		note := func(s Step) {
			mu.Lock()
			defer mu.Unlock()
			steps = append(steps, s)
		}
		controller := w.player(Controller, note)
		waits(Processor)
		controller.end()
		processor := w.player(Processor, note)
		waits(Controller)
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

// Programs with different stores on the same queues do each their own work.
func TestProgramsWithOtherBlobsLeaveEachOtherAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		other := &world{t: t, engine: w.engine, store: blob.Memory()}
		one, two := w.player(All, nil), other.player(All, nil)
		a, b := w.submit(one), other.submit(two)
		for _, c := range []*client{a, b} {
			if err := c.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.check(c)
		}
		w.settle()
		one.end()
		two.end()
		if n := w.poisoned(); n != 0 {
			t.Errorf("poison messages: got %d, want 0", n)
		}
		if log := one.log.String() + two.log.String(); !strings.Contains(log, "other blobs") {
			t.Errorf("logs: got %s, want a hint at the other blobs", log)
		}
	})
}
