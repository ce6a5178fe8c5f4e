package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/dispatcher"
)

// company calls a batch handler for messages made by the test, each with a context of its own,
// and keeps their results.
type company struct {
	*testing.T
	handler dispatcher.Handler[int]
	calls   sync.WaitGroup

	mu      sync.Mutex
	results map[int]error // by body; guarded by mu
}

func newCompany(t *testing.T, h dispatcher.BatchHandler[int], size int, wait time.Duration) *company {
	return &company{T: t, handler: dispatcher.Batch(h, size, wait), results: make(map[int]error)}
}

var errNotYet = errors.New("no result yet")

// come adds a message, waits until it has joined a batch, and returns a function that ends its
// context.
func (c *company) come(n int) (end func(error)) {
	end = c.bring(n)
	synctest.Wait()
	return end
}

// bring is come without waiting.
func (c *company) bring(n int) (end func(error)) {
	ctx, cancel := context.WithCancelCause(context.WithValue(context.Background(), whose{}, n))
	c.mu.Lock()
	c.results[n] = errNotYet
	c.mu.Unlock()
	c.calls.Go(func() {
		result := errors.New("it ended its goroutine")
		defer func() {
			c.mu.Lock()
			c.results[n] = result
			c.mu.Unlock()
			cancel(nil)
		}()
		result = c.handler(ctx, &dispatcher.Message[int]{Body: n})
	})
	return cancel
}

type whose struct{}

// result returns the result of a message.
func (c *company) result(n int) error {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.results[n]
}

func bodies(ms []*dispatcher.Message[int]) (all []int) {
	for _, m := range ms {
		all = append(all, m.Body)
	}
	return all
}

// Whatever the order of arrivals, no batch exceeds its size, none waits longer than it may, and
// every message is in one batch and gets its own result.
func TestNoBatchIsOverItsSize(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.IntRange(-1, 5).Draw(rt, "size")
		wait := time.Duration(rapid.IntRange(-1, 5).Draw(rt, "wait")) * time.Second
		gaps := rapid.SliceOfN(rapid.IntRange(0, 3), 1, 40).Draw(rt, "gaps")
		together := rapid.Bool().Draw(rt, "together")
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var seen []int
			came := make(map[int]time.Time)
			c := newCompany(t, func(_ context.Context, ms []*dispatcher.Message[int]) (results []error) {
				mu.Lock()
				defer mu.Unlock()
				if len(ms) > max(size, 1) {
					rt.Errorf("a batch of %d, size %d", len(ms), size)
				}
				if waited := time.Since(came[ms[0].Body]); waited > max(wait, 0) {
					rt.Errorf("a batch waited %v, it may %v", waited, wait)
				}
				for _, m := range ms {
					seen = append(seen, m.Body)
					results = append(results, fmt.Errorf("of %d", m.Body))
				}
				return results
			}, size, wait)
			for n, gap := range gaps {
				time.Sleep(time.Duration(gap) * time.Second / 2)
				mu.Lock()
				came[n] = time.Now()
				mu.Unlock()
				c.bring(n)
				if !together {
					synctest.Wait()
				}
			}
			time.Sleep(10 * time.Second)
			c.calls.Wait()
			for n := range gaps {
				if err := c.result(n); err == nil || err.Error() != fmt.Sprintf("of %d", n) {
					rt.Errorf("message %d got %v", n, err)
				}
			}
			slices.Sort(seen)
			if len(seen) != len(gaps) || len(slices.Compact(seen)) != len(gaps) {
				rt.Errorf("batches of %v, %d messages", seen, len(gaps))
			}
		})
	})
}

// The context of a batch ends with that of the last of its messages, not of the first, and has
// the cause of the last.
func TestABatchDoesNotEndWithItsFirstContext(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}} {
		synctest.Test(t, func(t *testing.T) {
			var ended error
			c := newCompany(t, func(ctx context.Context, ms []*dispatcher.Message[int]) []error {
				if ctx.Value(whose{}) != 0 {
					t.Error("the context has not the values of the first")
				}
				<-ctx.Done()
				ended = context.Cause(ctx)
				return nil
			}, 3, time.Hour)
			ends := []func(error){c.come(0), c.come(1), c.come(2)}
			for i, n := range order {
				if synctest.Wait(); ended != nil {
					t.Fatalf("it has ended when %d contexts had", i)
				}
				time.Sleep(time.Second)
				ends[n](fmt.Errorf("the cause of %d", n))
			}
			c.calls.Wait()
			if want := fmt.Sprintf("the cause of %d", order[2]); ended == nil || ended.Error() != want {
				t.Errorf("it ended with %v, want %s", ended, want)
			}
			if c.result(0) != nil {
				t.Errorf("the results are lost: %v", c.results)
			}
		})
	}
}

// A message whose context ends while its batch fills starts the batch and is left out of it,
// whichever it is.
func TestAMessageWhoseContextHasEndedIsLeftOut(t *testing.T) {
	for leaver := range 3 {
		synctest.Test(t, func(t *testing.T) {
			var got []int
			release := make(chan struct{})
			c := newCompany(t, func(ctx context.Context, ms []*dispatcher.Message[int]) []error {
				got = bodies(ms)
				<-release
				return make([]error, len(ms))
			}, 10, time.Hour)
			ends := []func(error){c.come(0), c.come(1), c.come(2)}
			ends[leaver](dispatcher.ErrLeaseLost)
			if err := c.result(leaver); !errors.Is(err, dispatcher.ErrLeaseLost) {
				t.Errorf("message %d has left and got %v while its batch runs", leaver, err)
			}
			want := slices.Delete([]int{0, 1, 2}, leaver, leaver+1)
			if !slices.Equal(got, want) {
				t.Errorf("batch of %v, want %v", got, want)
			}
			close(release)
			c.calls.Wait()
			for _, n := range want {
				if err := c.result(n); err != nil {
					t.Errorf("message %d: %v", n, err)
				}
			}
		})
	}
}

// When all messages are left out, the handler is not called.
func TestABatchOfNobodyIsNotHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCompany(t, func(context.Context, []*dispatcher.Message[int]) []error {
			t.Error("it was handled")
			return nil
		}, 10, time.Hour)
		c.come(0)(dispatcher.ErrStopping)
		c.calls.Wait()
		if err := c.result(0); !errors.Is(err, dispatcher.ErrStopping) {
			t.Errorf("got %v", err)
		}
	})
}

// Only nil is success for all. Any other number of results than one per message, including an
// empty slice, is an error for all that names both numbers. So is a panic, and runtime.Goexit.
func TestOnlyNilIsSuccessForAWholeBatch(t *testing.T) {
	for name, c := range map[string]struct {
		handler dispatcher.BatchHandler[int]
		says    []string // nothing for success
	}{
		"nil":   {func(context.Context, []*dispatcher.Message[int]) []error { return nil }, nil},
		"each":  {func(context.Context, []*dispatcher.Message[int]) []error { return make([]error, 3) }, nil},
		"empty": {func(context.Context, []*dispatcher.Message[int]) []error { return []error{} }, []string{"0 for 3"}},
		"fewer": {func(context.Context, []*dispatcher.Message[int]) []error { return make([]error, 2) }, []string{"2 for 3"}},
		"more":  {func(context.Context, []*dispatcher.Message[int]) []error { return make([]error, 4) }, []string{"4 for 3"}},
		// What went wrong is not lost, and is not what becomes of messages that it was not said of.
		"one for all": {func(context.Context, []*dispatcher.Message[int]) []error {
			return []error{dispatcher.Poison(errors.New("the disk is full"))}
		}, []string{"1 for 3 messages (nil if all succeeded, or one for each); the first error: the disk is full"}},
		"panic": {func(context.Context, []*dispatcher.Message[int]) []error { panic("the batch broke") }, []string{"the batch broke"}},
		// The one whose goroutine it was has no result of its own.
		"Goexit": {func(context.Context, []*dispatcher.Message[int]) []error { runtime.Goexit(); return nil }, []string{"Goexit", "it ended its goroutine"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newCompany(t, c.handler, 3, time.Hour)
			for n := range 3 {
				b.come(n)
			}
			b.calls.Wait()
			for n := range 3 {
				err := b.result(n)
				if asked := dispatcher.ResultOf(err); err != nil && asked.Explicit {
					t.Errorf("%s: message %d is to be %v", name, n, asked.Outcome)
				}
				told := slices.ContainsFunc(c.says, func(s string) bool { return err != nil && strings.Contains(err.Error(), s) })
				if (err == nil) != (c.says == nil) || err != nil && !told {
					t.Errorf("%s: message %d got %v", name, n, err)
				}
			}
		})
	}
}
