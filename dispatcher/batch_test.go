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

// batchTest calls a batch handler for messages made by the test, each with a context of its own,
// and keeps their results.
type batchTest struct {
	*testing.T
	handler dispatcher.Handler[int]
	calls   sync.WaitGroup

	mu      sync.Mutex
	results map[int]error // by body; guarded by mu
}

func newBatchTest(t *testing.T, h dispatcher.BatchHandler[int], size int, wait time.Duration) *batchTest {
	return &batchTest{T: t, handler: dispatcher.Batch(h, size, wait), results: make(map[int]error)}
}

var errNoResult = errors.New("no result yet")

// add adds a message, waits until it has joined a batch, and returns a function that ends its
// context.
func (c *batchTest) add(n int) (end func(error)) {
	end = c.start(n)
	synctest.Wait()
	return end
}

// start adds a message without waiting.
func (c *batchTest) start(n int) (end func(error)) {
	ctx, cancel := context.WithCancelCause(context.WithValue(context.Background(), messageKey{}, n))
	c.mu.Lock()
	c.results[n] = errNoResult
	c.mu.Unlock()
	c.calls.Go(func() {
		result := errors.New("the handler ended its goroutine")
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

// messageKey is the key of a message's number in its context.
type messageKey struct{}

// result returns the result of a message.
func (c *batchTest) result(n int) error {
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

// Whatever the order of arrivals, no batch exceeds its size or its wait, and every message is in
// one batch and gets its own result.
func TestNoBatchExceedsItsSizeOrItsWait(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.IntRange(1, 5).Draw(rt, "size")
		wait := time.Duration(rapid.IntRange(-1, 5).Draw(rt, "wait")) * time.Second
		gaps := rapid.SliceOfN(rapid.IntRange(0, 3), 1, 40).Draw(rt, "gaps")
		together := rapid.Bool().Draw(rt, "together")
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var seen []int
			arrived := make(map[int]time.Time)
			c := newBatchTest(t, func(_ context.Context, ms []*dispatcher.Message[int]) (results []error) {
				mu.Lock()
				defer mu.Unlock()
				if len(ms) > size {
					rt.Errorf("got a batch of %d, want at most %d", len(ms), size)
				}
				if waited := time.Since(arrived[ms[0].Body]); waited > max(wait, 0) {
					rt.Errorf("got a batch that waited %v, want at most %v", waited, max(wait, 0))
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
				arrived[n] = time.Now()
				mu.Unlock()
				c.start(n)
				if !together {
					synctest.Wait()
				}
			}
			time.Sleep(10 * time.Second)
			c.calls.Wait()
			for n := range gaps {
				if err := c.result(n); err == nil || err.Error() != fmt.Sprintf("of %d", n) {
					rt.Errorf("result of message %d: got %v, want %q", n, err, fmt.Sprintf("of %d", n))
				}
			}
			slices.Sort(seen)
			if len(seen) != len(gaps) || len(slices.Compact(seen)) != len(gaps) {
				rt.Errorf("got batches with the messages %v, want each of %d once", seen, len(gaps))
			}
		})
	})
}

// The context of a batch ends when the contexts of all its messages have ended, with the cause of
// the last one.
func TestABatchDoesNotEndWithItsFirstContext(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}} {
		synctest.Test(t, func(t *testing.T) {
			var ended error
			c := newBatchTest(t, func(ctx context.Context, ms []*dispatcher.Message[int]) []error {
				if ctx.Value(messageKey{}) != 0 {
					t.Errorf("message in the context: got %v, want 0, the first", ctx.Value(messageKey{}))
				}
				<-ctx.Done()
				ended = context.Cause(ctx)
				return nil
			}, 3, time.Hour)
			ends := []func(error){c.add(0), c.add(1), c.add(2)}
			for i, n := range order {
				if synctest.Wait(); ended != nil {
					t.Fatalf("the batch's context ended after %d of 3 contexts", i)
				}
				time.Sleep(time.Second)
				ends[n](fmt.Errorf("the cause of %d", n))
			}
			c.calls.Wait()
			if want := fmt.Sprintf("the cause of %d", order[2]); ended == nil || ended.Error() != want {
				t.Errorf("cause: got %v, want %s", ended, want)
			}
			if c.result(0) != nil {
				t.Errorf("result of message 0: got %v, want nil", c.result(0))
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
			c := newBatchTest(t, func(ctx context.Context, ms []*dispatcher.Message[int]) []error {
				got = bodies(ms)
				<-release
				return make([]error, len(ms))
			}, 10, time.Hour)
			ends := []func(error){c.add(0), c.add(1), c.add(2)}
			ends[leaver](dispatcher.ErrLeaseLost)
			if err := c.result(leaver); !errors.Is(err, dispatcher.ErrLeaseLost) {
				t.Errorf("result of message %d while its batch runs: got %v, want ErrLeaseLost", leaver, err)
			}
			want := slices.Delete([]int{0, 1, 2}, leaver, leaver+1)
			if !slices.Equal(got, want) {
				t.Errorf("batch: got %v, want %v", got, want)
			}
			close(release)
			c.calls.Wait()
			for _, n := range want {
				if err := c.result(n); err != nil {
					t.Errorf("result of message %d: got %v, want nil", n, err)
				}
			}
		})
	}
}

// When all messages are left out, the handler is not called.
func TestAnEmptyBatchIsNotHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newBatchTest(t, func(context.Context, []*dispatcher.Message[int]) []error {
			t.Error("the handler was called")
			return nil
		}, 10, time.Hour)
		c.add(0)(dispatcher.ErrStopping)
		c.calls.Wait()
		if err := c.result(0); !errors.Is(err, dispatcher.ErrStopping) {
			t.Errorf("got error %v, want ErrStopping", err)
		}
	})
}

// Only nil is success for all. Any other number of results than one per message, including an
// empty slice, is an error for all that names both numbers. So is a panic, and runtime.Goexit.
func TestOnlyNilIsSuccessForAWholeBatch(t *testing.T) {
	for name, c := range map[string]struct {
		handler dispatcher.BatchHandler[int]
		want    []string // one of these texts in each error; none for success
	}{
		"nil":   {func(context.Context, []*dispatcher.Message[int]) []error { return nil }, nil},
		"each":  {func(context.Context, []*dispatcher.Message[int]) []error { return make([]error, 3) }, nil},
		"empty": {func(context.Context, []*dispatcher.Message[int]) []error { return []error{} }, []string{"0 for 3"}},
		"fewer": {func(context.Context, []*dispatcher.Message[int]) []error { return make([]error, 2) }, []string{"2 for 3"}},
		"more":  {func(context.Context, []*dispatcher.Message[int]) []error { return make([]error, 4) }, []string{"4 for 3"}},
		// The first error is kept in the text, but its outcome does not apply to the other messages.
		"one for all": {func(context.Context, []*dispatcher.Message[int]) []error {
			return []error{dispatcher.Poison(errors.New("the disk is full"))}
		}, []string{"1 for 3 messages (nil if all succeeded, or one for each); the first error: the disk is full"}},
		"panic": {
			func(context.Context, []*dispatcher.Message[int]) []error { panic("the batch broke") },
			[]string{"the batch broke"},
		},
		// The message whose goroutine ran the handler has no result of its own.
		"Goexit": {
			func(context.Context, []*dispatcher.Message[int]) []error { runtime.Goexit(); return nil },
			[]string{"Goexit", "the handler ended its goroutine"},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBatchTest(t, c.handler, 3, time.Hour)
			for n := range 3 {
				b.add(n)
			}
			b.calls.Wait()
			for n := range 3 {
				err := b.result(n)
				if result := dispatcher.ResultOf(err); err != nil && result.Explicit {
					t.Errorf("%s: result of message %d: got %v, want a failure", name, n, result.Outcome)
				}
				found := slices.ContainsFunc(c.want, func(s string) bool { return err != nil && strings.Contains(err.Error(), s) })
				if (err == nil) != (c.want == nil) || err != nil && !found {
					t.Errorf("%s: result of message %d: got %v, want one of %q", name, n, err, c.want)
				}
			}
		})
	}
}
