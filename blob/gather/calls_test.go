package gather_test

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/gather"
)

// gatherAll puts the parts of a gather in some order, each followed by a look by any of the processes.
func (b *bundle) gatherAll(processes []*gather.Gather, id string, parts int, dice *rand.Rand) {
	b.Helper()
	for i, part := range dice.Perm(parts) {
		before := b.store.count("")
		b.put(id, part)
		b.wantComplete(processes[dice.IntN(len(processes))], id, parts, i == parts-1)
		if calls := b.store.count("") - before; calls > 3 {
			b.Fatalf("part %d of %d: got %d calls of the store, want at most 3", i, parts, calls)
		}
	}
}

// Each process lists the parts about ln n times, and the other calls for a part are three at most.
func TestListsGrowLikeTheLogarithm(t *testing.T) {
	if testing.Short() {
		t.Skip("gathers thousands of parts")
	}
	for _, k := range []int{1, 3} {
		for _, parts := range []int{1, 10, 100, 1000} {
			b := setup(t, nil)
			dice := rand.New(rand.NewPCG(uint64(k), uint64(parts)))
			var processes []*gather.Gather
			for range k {
				processes = append(processes, process(t, b.store, nil))
			}
			const gathers = 20
			for i := range gathers {
				b.gatherAll(processes, fmt.Sprint("gather-", i), parts, dice)
			}
			got := float64(b.store.count("list")) / gathers
			t.Logf("%d processes, %d parts: %.1f lists a gather", k, parts, got)
			// The first look of a process lists, and so does every one after its missing part has come.
			if most := float64(k) * (2 + 1.5*math.Log(float64(parts))); got > most {
				t.Errorf("%d processes, %d parts: got %.1f lists a gather, want at most %.1f", k, parts, got, most)
			}
		}
	}
}

// In the order of their numbers, and the other way round, lists must not be more.
func TestTheOrderOfThePartsDoesNotMatter(t *testing.T) {
	const parts = 1000
	for name, number := range map[string]func(i int) int{
		"ascending":  func(i int) int { return i },
		"descending": func(i int) int { return parts - 1 - i },
		"two ends":   func(i int) int { return i/2 + i%2*(parts-1-i+i%2) },
	} {
		b := setup(t, nil)
		seen := make(map[int]bool)
		for i := range parts {
			part := number(i)
			if seen[part] || part >= parts {
				t.Fatalf("%s: part %d twice, or too many", name, part)
			}
			seen[part] = true
			b.put(batch, part)
			b.wantComplete(b.Gather, batch, parts, i == parts-1)
		}
		if got := b.store.count("list"); got > 25 {
			t.Errorf("%s: got %d lists of 1,000 parts, want at most 25", name, got)
		}
	}
}

// Handlers that ask at the same time share answers.
func TestHandlersThatAskAtOnceShareTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		b.put(batch, 0)
		b.store.before = func(context.Context, string, blob.Ref) error { time.Sleep(10 * time.Millisecond); return nil }
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() { b.wantComplete(b.Gather, batch, 2, false) })
		}
		all.Wait()
		// One list for the first, and a look at the missing part and the end for all who came during that.
		if lists, stats := b.store.count("list"), b.store.count("stat"); lists != 1 || stats != 2 {
			t.Errorf("got %d lists and %d stats for 64 handlers, want 1 and 2", lists, stats)
		}
	})
}

// A handler that came while another one was looking must not take its answer: its part may be stored since.
func TestAnAnswerIsNeverOlderThanTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		b.put(batch, 0)
		listed := make(chan struct{})
		b.store.before = func(context.Context, string, blob.Ref) error { return nil }
		slow := &slowList{b.store, listed}
		g := process(t, slow, nil)
		var all sync.WaitGroup
		all.Go(func() { b.wantComplete(g, batch, 2, false) })
		synctest.Wait() // it has listed
		b.put(batch, 1)
		all.Go(func() { b.wantComplete(g, batch, 2, true) })
		synctest.Wait()
		close(listed)
		all.Wait()
	})
}

func TestWaitingForAnotherLookEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		listed := make(chan struct{})
		g := process(t, &slowList{b.store, listed}, nil)
		var all sync.WaitGroup
		all.Go(func() { b.wantComplete(g, batch, 2, false) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		_, err := g.Complete(ctx, batch, 2)
		wantError(t, err, context.DeadlineExceeded)
		if waited := time.Since(begin); waited != time.Second {
			t.Errorf("got the error after %v, want 1s", waited)
		}
		close(listed)
		all.Wait()
	})
}

// A look that fails is nobody else's answer.
func TestAFailedLookIsRepeatedByTheNextHandler(t *testing.T) {
	b := setup(t, nil)
	b.putAll(batch, 2)
	b.store.before = func(context.Context, string, blob.Ref) error { return blob.ErrUnavailable }
	_, err := b.Complete(t.Context(), batch, 2)
	wantError(t, err, blob.ErrUnavailable)
	b.store.before = nil
	b.wantComplete(b.Gather, batch, 2, true)
}

func TestAGatherThatWasForgottenIsListedAgain(t *testing.T) {
	b := setup(t, &gather.Options{Remember: 2})
	b.wantComplete(b.Gather, "a", 2, false)
	b.wantComplete(b.Gather, "b", 2, false)
	b.wantComplete(b.Gather, "a", 2, false)
	b.wantComplete(b.Gather, "b", 2, false)
	if got := b.store.count("list"); got != 2 {
		t.Errorf("two gathers: got %d lists, want 2", got)
	}
	for range 3 {
		for _, id := range []string{"a", "b", "c"} {
			b.wantComplete(b.Gather, id, 2, false)
		}
	}
	if got := b.store.count("list"); got <= 5 {
		t.Errorf("three gathers in the room of two: got %d lists, want more than 5", got)
	}
}

func TestACompleteGatherTakesNoRoom(t *testing.T) {
	b := setup(t, &gather.Options{Remember: 2})
	b.wantComplete(b.Gather, "a", 2, false)
	for i := range 20 {
		id := fmt.Sprint("done-", i)
		b.put(id, 0)
		b.wantComplete(b.Gather, id, 1, true)
	}
	b.wantComplete(b.Gather, "a", 2, false)
	if got := b.store.count("list"); got != 21 {
		t.Errorf("got %d lists, want 21: one for each gather", got)
	}
}

// What is remembered for another number of parts must not count.
func TestAnotherNumberOfPartsIsLookedUpAnew(t *testing.T) {
	b := setup(t, nil)
	b.putAll(batch, 2)
	b.wantComplete(b.Gather, batch, 5, false)
	b.wantComplete(b.Gather, batch, 2, true)
	b.wantComplete(b.Gather, batch, 3, false)
}

// The calls that the package comment counts.
func TestWhatTheEndCosts(t *testing.T) {
	b := setup(t, nil)
	const parts = 7
	b.putAll(batch, parts)
	cost := func(what string, want int, f func()) {
		t.Helper()
		before := b.store.count("")
		f()
		if got := b.store.count("") - before; got != want {
			t.Errorf("%s: got %d calls of the store, want %d", what, got, want)
		}
	}
	cost("the end", 2, func() { b.end(batch, "first") })
	cost("the end again", 1, func() { b.end(batch, "second") })
	cost("the parts", parts, func() {
		for _, err := range b.Parts(t.Context(), batch, parts) {
			if err != nil {
				t.Error(err)
			}
		}
	})
	cost("the stored parts", 1, func() {
		if got, err := b.Stored(t.Context(), batch); len(got) != parts || err != nil {
			t.Errorf("Stored: got %v, %v", got, err)
		}
	})
	cost("a sweep", parts+2, func() {
		if err := b.Sweep(t.Context(), batch); err != nil {
			t.Error(err)
		}
	})
	cost("a message after the end", 2, func() {
		b.put(batch, 3)
		b.wantComplete(b.Gather, batch, parts, true)
	})
	cost("forgetting", 3, func() {
		if err := b.Forget(t.Context(), batch); err != nil {
			t.Error(err)
		}
	})
	b.wantLeft("")
}

// slowList is a store whose lists wait after the store's answer.
type slowList struct {
	blob.Store
	wait chan struct{}
}

func (s *slowList) List(ctx context.Context, container, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		var found []blob.Info
		for b, err := range s.Store.List(ctx, container, prefix) {
			if err != nil {
				yield(blob.Info{}, err)
				return
			}
			found = append(found, b)
		}
		<-s.wait
		for _, b := range found {
			if !yield(b, nil) {
				return
			}
		}
	}
}

// More parts than a page of a list, and than fit into fewer digits.
func TestManyParts(t *testing.T) {
	b := setup(t, nil)
	const parts = 12_000
	for part := range parts - 1 {
		b.put(batch, part)
	}
	b.wantComplete(b.Gather, batch, parts, false)
	b.put(batch, parts-1)
	b.wantComplete(b.Gather, batch, parts, true)
	next := 0
	for part, err := range b.Parts(t.Context(), batch, parts) {
		if err != nil || part.Number != next || !strings.HasSuffix(part.Ref.Name, fmt.Sprintf("/%06d", next)) {
			t.Fatalf("got part %+v, %v; want %d", part, err, next)
		}
		next++
	}
	if next != parts {
		t.Errorf("got %d parts, want %d", next, parts)
	}
}
