package paired

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
)

func TestTheStopGivesBackWhatIsNotBegun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 4)
		r.divert(t, 128)
		home := &scripted{Queue: r.home, onEnqueue: func(context.Context, string) error { time.Sleep(5 * time.Second); return nil }}
		s := start(t, home, r.backlogs, &SyphonOptions{Parallel: 4})
		time.Sleep(time.Second)
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		if got := s.State(); got.Moved != 4 || got.InHand != 0 || got.Doubtful != 0 || got.Running {
			t.Errorf("got %+v, want 4 moved: those that were begun", got)
		}
		visible := 0
		for _, q := range r.backlogs {
			visible += len(take(t, q))
		}
		if visible != 124 {
			t.Errorf("got %d visible messages, want 124", visible)
		}
	})
}

// A dequeue in flight is not abandoned: what it returns is given back.
func TestTheStopWaitsForADequeue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 1)
		r.divert(t, 32)
		backlogs, wrapped := scriptAll(r.backlogs)
		backlogs[0].onDequeue = func(int) error { time.Sleep(5 * time.Second); return nil }
		s := start(t, r.home, wrapped, nil)
		time.Sleep(time.Second)
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		if got := len(take(t, r.backlogs[0])); got != 32 || s.State().Moved != 0 {
			t.Errorf("got %d visible messages and %d moved, want 32 and none", got, s.State().Moved)
		}
	})
}

func TestGraceAndHaltAbandonRequests(t *testing.T) {
	hang := func(ctx context.Context, _ string) error {
		<-ctx.Done()
		return fmt.Errorf("%w: %w", queue.ErrOutcomeUnknown, context.Cause(ctx))
	}
	for _, c := range []struct {
		name  string
		grace time.Duration
		halt  bool
		takes time.Duration
	}{
		{"after the grace", 5 * time.Second, false, 5 * time.Second},
		{"without a grace", -1, false, 0},
		{"halted", time.Hour, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRegions(t, 1)
				r.divert(t, 32)
				home := &scripted{Queue: r.home, onEnqueue: hang}
				s := must(newSyphon([]queue.Queue{home}, r.backlogs, &SyphonOptions{Parallel: 4, Grace: c.grace, Lease: time.Hour}))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error)
				go func() { ended <- s.Run(ctx) }()
				synctest.Wait()
				if n := s.State().InHand; n == 0 {
					t.Error("got nothing in hand")
				}
				begun := time.Now()
				if c.halt {
					s.Halt()
				} else {
					cancel()
				}
				if err := <-ended; !errors.Is(err, errAbandoned) {
					t.Errorf("got %v, want that requests were abandoned", err)
				}
				if took := time.Since(begun); took != c.takes {
					t.Errorf("it took %v, want %v", took, c.takes)
				}
				if got := s.State(); got.InHand != 0 || got.Doubtful != 4 {
					t.Errorf("got %+v, want nothing in hand and four in doubt", got)
				}
				s.Halt() // again
			})
		})
	}
}

// A dequeue that is hung up on may have taken messages: Run says so.
func TestAHaltDuringADequeueIsAnAbandonedRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 1)
		backlogs, wrapped := scriptAll(r.backlogs)
		backlogs[0].onDequeue = func(int) error { time.Sleep(5 * time.Second); return nil }
		s := must(newSyphon([]queue.Queue{r.home}, wrapped, nil))
		ended := make(chan error)
		go func() { ended <- s.Run(t.Context()) }()
		time.Sleep(time.Second)
		s.Halt()
		if err := <-ended; !errors.Is(err, errAbandoned) {
			t.Errorf("got %v, want that requests were abandoned", err)
		}
	})
}

func TestAHaltedSyphonDoesNotRunAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 1)
		s := must(newSyphon([]queue.Queue{r.home}, r.backlogs, nil))
		s.Halt()
		for range 1000 { // a lane was faster than the halt only now and then
			if err := s.Run(t.Context()); err != nil {
				t.Fatalf("got %v, want nil", err)
			}
		}
		if n := s.State().Requests.Total(); n != 0 {
			t.Errorf("got %d requests, want none", n)
		}
	})
}

func TestASyphonRunsOnceAtATimeAndAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 1)
		s := start(t, r.home, r.backlogs, nil)
		synctest.Wait()
		if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "runs already") {
			t.Errorf("got %v, want that it runs already", err)
		}
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		r.divert(t, 10)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Run(ctx); err != nil {
			t.Fatal(err)
		}
		sameTexts(t, texts(t, r.home), jobs(10))
	})
}
