package roles

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/wakeup"
)

const day1, day2, day3 = "2026-11-01", "2026-11-02", "2026-11-03"

// M-05, M-07: what the books say is what a loop over the records computes.
func TestTotalsAreThoseOfAStraightComputation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var bus wakeup.Bus
		var mu sync.Mutex
		charged, reported := 0, map[string]books.Batch{}
		p := w.start(Options{
			Roles: All, Group: 7, Source: &bus, Publisher: &bus,
			Charged: func(c Charged) {
				mu.Lock()
				defer mu.Unlock()
				charged += c.Records
			},
			Reported: func(b books.Batch) {
				mu.Lock()
				defer mu.Unlock()
				reported[b.Name] = b
			},
		}, nil)
		for i, day := range []string{day1, day2, day3} {
			w.ship(p.System, day, generate(uint64(i), 300), 50)
		}
		w.settle()
		p.end()
		w.check()
		if charged != 900 || len(reported) != 3 {
			t.Errorf("got %d records charged and %d batches reported, want 900 and 3", charged, len(reported))
		}
		for day, b := range reported {
			if latency := b.Reported.Sub(b.HandedOver); latency < 0 || latency > 30*time.Second || b.Items != 6*8 {
				t.Errorf("batch %s: got a latency of %v and %d items, want less than 30s and 48", day, latency, b.Items)
			}
		}
		if n := strings.Count(p.log.String(), "a batch is reported"); n != 3 {
			t.Errorf("the log says %d times that a batch is reported, want 3", n)
		}
	})
}

// M-03, M-04: roles of other processes, any number of them, take part. Each of two workers goes on only when the other has charged an
// item too, and there are more items than one of them takes at once.
func TestRolesInProcessesOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		took := []chan struct{}{make(chan struct{}), make(chan struct{})}
		worker := func(i int) Options {
			var once sync.Once
			return Options{Roles: Worker, Charged: func(Charged) {
				once.Do(func() { close(took[i]) })
				<-took[1-i]
			}}
		}
		processes := []*process{
			w.start(Options{Roles: Initiator, Group: 1}, nil),
			w.start(worker(0), nil),
			w.start(worker(1), nil),
			w.start(Options{Roles: Controller}, nil),
		}
		w.ship(w.submitter(), day1, generate(1, 800), 60)
		<-took[0]
		<-took[1]
		w.settle()
		for _, p := range processes {
			p.end()
		}
		w.check()
	})
}

// slow is a process whose operations take a while, so that another one has a share of the messages.
func slow() *power {
	p := newPower(-1)
	p.pace = 20 * time.Millisecond
	return p
}

// Books that are away for hours, such as on a full disk, delay a batch and nothing else.
func TestBooksThatAreAwayDelayABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.books.fail(errors.New("no space left on device"))
		p := w.start(Options{Roles: All, Group: 10}, nil)
		w.ship(p.System, day1, generate(1, 100), 50)
		time.Sleep(5 * time.Hour)
		if !strings.Contains(p.log.String(), "no space left on device") {
			t.Error("the log does not say why the batch is not reported")
		}
		w.books.fail(nil)
		w.settle()
		p.end()
		w.check()
	})
}
