package queue_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
)

func TestDieAfterKillsOneCall(t *testing.T) {
	acted := 0
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			q, inner := open(t, faultqueue.Options{Seed: seed, DieAfter: 20})
			ok := 0
			for {
				_, err := q.Enqueue(t.Context(), "x", nil)
				if err != nil {
					if !errors.Is(err, faultqueue.ErrDead) || !errors.Is(err, queue.ErrOutcomeUnknown) {
						t.Fatal(err)
					}
					break
				}
				ok++
			}
			if ok >= 20 {
				t.Errorf("successful calls: got %d, want fewer than 20", ok)
			}
			select {
			case <-q.Died():
			default:
				t.Error("Died is not closed after the death")
			}
			extra := int(depth(t, inner)) - ok
			if extra != 0 && extra != 1 {
				t.Errorf("depth: got %d after %d successful calls, want at most one more", ok+extra, ok)
			}
			acted += extra
			if _, err := q.Sibling("-poison").Enqueue(t.Context(), "x", nil); !errors.Is(err, faultqueue.ErrDead) {
				t.Errorf("enqueue on the sibling: got %v, want ErrDead", err)
			}
			if n := int(depth(t, inner)) - ok - extra; n != 0 {
				t.Errorf("messages enqueued after the death: got %d, want 0", n)
			}
		})
	}
	if acted == 0 || acted == 40 {
		t.Errorf("processes that died after the server had acted: got %d of 40, want some of both", acted)
	}
}

func TestKillEndsCallsInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := faultqueue.Options{UsualLatency: faultqueue.Range{Min: time.Minute}}
		q, _ := open(t, o)
		failed := make(chan error)
		go func() {
			_, err := q.Enqueue(t.Context(), "x", nil)
			failed <- err
		}()
		synctest.Wait()
		start := time.Now()
		q.Kill()
		q.Kill()
		if err := <-failed; !errors.Is(err, faultqueue.ErrDead) || time.Since(start) != 0 {
			t.Errorf("call: got %v, %v after the death; want ErrDead at once", err, time.Since(start))
		}
	})
}

// With a rate, the call in which the process dies depends on the call's subject, not on the number
// of calls before it. Half of those calls take effect.
func TestDeathRateKillsInFlight(t *testing.T) {
	acted := make(map[bool]int)
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			o := only(faultqueue.Enqueue, faultqueue.Rates{Death: 1})
			o.Seed = seed
			q, inner := open(t, o)
			start := time.Now()
			if _, err := q.Enqueue(t.Context(), "x", nil); !errors.Is(err, faultqueue.ErrDead) || !errors.Is(err, queue.ErrOutcomeUnknown) {
				t.Errorf("error: got %v, want ErrDead and ErrOutcomeUnknown", err)
			}
			if time.Since(start) == 0 {
				t.Error("the process died before the request was sent")
			}
			select {
			case <-q.Died():
			default:
				t.Error("Died is not closed after the death")
			}
			if _, err := q.Dequeue(t.Context(), 1, time.Second); !errors.Is(err, faultqueue.ErrDead) {
				t.Errorf("dequeue after the death: got %v, want ErrDead", err)
			}
			acted[depth(t, inner) == 1]++
		})
	}
	if acted[true] < 60 || acted[false] < 60 {
		t.Errorf("200 calls: got %d that took effect and %d that did not, want at least 60 of each", acted[true], acted[false])
	}
}
