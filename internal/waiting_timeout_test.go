package internal_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/waiting"
)

// Whatever happens in whatever order, the context says what one of package context says.
func TestATimeoutIsThatOfPackageContext(t *testing.T) {
	type key struct{}
	gone := errors.New("gone")
	rapid.Check(t, func(r *rapid.T) {
		steps := rapid.SliceOfN(rapid.SampledFrom([]string{"wait", "done", "derive", "cancel", "parent"}), 0, 6).Draw(r, "steps")
		parentTimeout := rapid.SampledFrom([]time.Duration{0, 2 * time.Second, time.Hour}).Draw(r, "timeout of the parent")
		wrong := "" // a failure of rapid ends its own goroutine only
		synctest.Test(t, func(*testing.T) {
			parent, end := context.WithCancelCause(context.WithValue(context.Background(), key{}, 7))
			defer end(nil)
			if parentTimeout > 0 {
				var stop context.CancelFunc
				parent, stop = context.WithTimeoutCause(parent, parentTimeout, errors.New("closing time"))
				defer stop()
			}
			plain, cancelPlain := context.WithTimeout(parent, 3*time.Second)
			ours, cancelOurs := waiting.WithTimeout(parent, 3*time.Second)
			defer cancelPlain()
			defer cancelOurs()
			all := [][2]context.Context{{plain, ours}}
			for i, step := range append(steps, "done", "wait") {
				switch step {
				case "wait":
					time.Sleep(1500 * time.Millisecond)
				case "done":
					_ = ours.Done()
				case "derive":
					a, stopA := context.WithCancel(plain)
					b, stopB := context.WithCancel(ours)
					defer stopA()
					defer stopB()
					all = append(all, [2]context.Context{a, b})
				case "cancel":
					cancelPlain()
					cancelOurs()
				case "parent":
					end(gone)
				}
				synctest.Wait()
				for _, two := range all {
					want, got := two[0], two[1]
					wantEnd, _ := want.Deadline()
					gotEnd, bounded := got.Deadline()
					if !errors.Is(got.Err(), want.Err()) || got.Value(key{}) != 7 || !bounded || !gotEnd.Equal(wantEnd) ||
						got.Err() == nil != (want.Err() == nil) || !errors.Is(context.Cause(got), context.Cause(want)) {
						wrong = fmt.Sprintf("after step %d of %v: got %v, %v, %v; want %v, %v, %v", i, steps,
							got.Err(), context.Cause(got), gotEnd, want.Err(), context.Cause(want), wantEnd)
						return
					}
				}
			}
			for _, two := range all {
				if ended(two[0]) != ended(two[1]) {
					wrong = fmt.Sprintf("after %v: Done of ours %v, of package context %v", steps, ended(two[1]), ended(two[0]))
				}
			}
		})
		if wrong != "" {
			r.Fatal(wrong)
		}
	})
}

func ended(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// A call that waits for nothing takes one allocation, and a context derived from it no goroutine.
func TestATimeoutCostsLittle(t *testing.T) {
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		within, cancel := waiting.WithTimeout(ctx, time.Minute)
		if within.Err() != nil {
			t.Error(within.Err())
		}
		cancel()
	}); n > 2 {
		t.Errorf("%v allocations, want the context and its cancel function", n)
	}
	within, cancel := waiting.WithTimeout(ctx, time.Minute)
	defer cancel()
	before := runtime.NumGoroutine()
	for range 10 {
		_, stop := context.WithTimeout(within, time.Second)
		defer stop()
	}
	if now := runtime.NumGoroutine(); now > before {
		t.Errorf("%d goroutines for ten derived contexts, want none", now-before)
	}
}
