package internal_test

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/hook"
)

// newGuard returns a guard and the failures that it reports.
func newGuard() (*hook.Guard, *[]hook.Failure) {
	var told []hook.Failure
	var mu sync.Mutex
	return hook.New(func(f hook.Failure) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, f)
	}), &told
}

var null any // what panic(nil) passes

func breaks() { panic("broken") }
func exits()  { runtime.Goexit() }

func TestAFailureIsToldWithNameValueAndStack(t *testing.T) {
	for name, call := range map[string]func(*hook.Guard, func()){
		"call":    func(g *hook.Guard, f func()) { g.Call("one", f) },
		"contain": func(g *hook.Guard, f func()) { g.Contain("one", f) },
	} {
		for _, c := range []struct {
			hook  func()
			value any
			stack string
		}{{breaks, "broken", "breaks"}, {exits, nil, "exits"}, {func() { panic(null) }, &runtime.PanicNilError{}, "internal_test"}} {
			g, told := newGuard()
			done := make(chan struct{})
			go func() { // which runtime.Goexit may end
				defer close(done)
				call(g, c.hook)
			}()
			<-done
			if len(*told) != 1 {
				t.Fatalf("%s: told %v", name, *told)
			}
			f := (*told)[0]
			_, isNull := f.Value.(*runtime.PanicNilError)
			_, wantNull := c.value.(*runtime.PanicNilError)
			if f.Hook != "one" || f.Times != 1 || isNull != wantNull || !isNull && f.Value != c.value || !strings.Contains(string(f.Stack), c.stack) {
				t.Errorf("%s: reported failure: got %+v", name, f)
			}
		}
	}
}

func TestContainEndsBothAndCallOnlyAPanic(t *testing.T) {
	g, _ := newGuard()
	after := ""
	done := make(chan struct{})
	go func() {
		defer close(done)
		if g.Contain("a", breaks) || g.Contain("a", exits) || !g.Contain("a", func() {}) {
			t.Error("what returned and what did not is mixed up")
		}
		g.Call("b", breaks)
		after = "a panic"
		g.Call("b", exits)
		after = "Goexit"
	}()
	<-done
	if after != "a panic" {
		t.Errorf("it went on after %q", after)
	}
}

// A hook that always fails is reported at once, and then at intervals with a count.
func TestAFloodOfFailuresIsThinned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, told := newGuard()
		for range 25 {
			g.Contain("one", breaks)
			g.Call("two", breaks)
			time.Sleep(time.Second)
		}
		var times []int
		for _, f := range *told {
			times = append(times, f.Times)
		}
		if !slices.Equal(times, []int{1, 1, 10, 10, 10, 10}) {
			t.Errorf("Times of the reported failures: got %v, want 1 1 10 10 10 10", times)
		}
	})
}
