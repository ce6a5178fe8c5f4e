package paired

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
)

// closed returns homes with one primary queue that does not accept.
func closed(t *testing.T) (*homes, *home) {
	t.Helper()
	h := newHomes([]queue.Queue{open(t, "west", "orders")}, "1")
	one := h.all["orders"]
	for range failuresToRest {
		if ok, _ := h.admit(one); !ok {
			t.Fatal("it rests too soon")
		}
		h.refused(one, fault(queue.ErrUnavailable, 500))
	}
	if ok, wait := h.admit(one); ok || wait <= 0 {
		t.Fatalf("got %v, %v; want that it rests", ok, wait)
	}
	return h, one
}

func TestWhoWaitsForAPrimaryGoesOnWhenItAccepts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, one := closed(t)
		for range 8 { // the waits have grown
			time.Sleep(2 * time.Minute)
			if ok, _ := h.admit(one); !ok {
				t.Fatal("got no try after the rest")
			}
			h.refused(one, fault(queue.ErrUnavailable, 500))
		}
		entered := make(chan time.Time, 3)
		for range 3 {
			go func() {
				if _, ok := h.enter(context.Background()); ok {
					entered <- time.Now()
				}
			}()
		}
		synctest.Wait()
		h.accepted(one) // a copy that began before
		accepted := time.Now()
		for range 3 {
			if at := <-entered; at != accepted {
				t.Errorf("it went on %v later", at.Sub(accepted))
			}
		}
		for range failuresToRest {
			h.refused(one, fault(queue.ErrUnavailable, 500))
		}
		if _, wait := h.admit(one); wait > 2*time.Second {
			t.Errorf("got a rest of %v in the next failure, want that it starts over", wait)
		}
	})
}

func TestOneLaneAndOneCopyTryAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, one := closed(t)
		time.Sleep(time.Minute)
		if try, ok := h.enter(t.Context()); !try || !ok {
			t.Fatal("got no try after the rest")
		}
		second := make(chan bool)
		go func() {
			try, _ := h.enter(context.Background())
			second <- try
		}()
		time.Sleep(time.Hour)
		if ok, _ := h.admit(one); !ok {
			t.Error("got no copy for the try")
		}
		if ok, _ := h.admit(one); ok {
			t.Error("got two copies at a time")
		}
		select {
		case <-second:
			t.Error("got two lanes at a time")
		default:
		}
		h.unsaid(one)
		if ok, _ := h.admit(one); !ok {
			t.Error("a copy that told nothing is not followed by another")
		}
		h.unsaid(one)
		h.left(true)
		if !<-second {
			t.Error("the other lane does not try when the first has left")
		}
		h.left(false)
	})
}

// A copy that began before the rest does not make it longer.
func TestLateFailuresDoNotProlongTheRest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, one := closed(t)
		for range 100 {
			h.refused(one, fault(queue.ErrUnavailable, 500))
		}
		if _, wait := h.admit(one); wait > 2*time.Second {
			t.Errorf("got a rest of %v, want that of one failure", wait)
		}
		since := h.failing()
		time.Sleep(time.Hour)
		h.refused(one, fault(queue.ErrUnavailable, 500))
		if h.failing() != since {
			t.Error("the failure starts anew")
		}
	})
}

func TestNobodyEntersAfterTheStop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, _ := closed(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, ok := h.enter(ctx); ok {
			t.Error("got in")
		}
	})
}
