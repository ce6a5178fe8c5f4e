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

func TestAFailureIsToldWithNameValueAndStack(t *testing.T) {
	for name, call := range map[string]func(*hook.Guard, func()){
		"call":             func(g *hook.Guard, f func()) { g.Call("one", f) },
		"one parameter":    func(g *hook.Guard, f func()) { hook.Guard1(g, "one", func(int) { f() })(1) },
		"two parameters":   func(g *hook.Guard, f func()) { hook.Guard2(g, "one", func(int, int) { f() })(1, 2) },
		"three parameters": func(g *hook.Guard, f func()) { hook.Guard3(g, "one", func(int, int, int) { f() })(1, 2, 3) },
	} {
		g, told := newGuard()
		call(g, breaks)
		if len(*told) != 1 {
			t.Fatalf("%s: told %v", name, *told)
		}
		f := (*told)[0]
		if f.Hook != "one" || f.Times != 1 || f.Value != "broken" || !strings.Contains(string(f.Stack), "breaks") {
			t.Errorf("%s: reported failure: got %+v", name, f)
		}
	}
}

// The arguments arrive, and a hook that is not set stays so.
func TestAGuardedHookIsTheHook(t *testing.T) {
	g, told := newGuard()
	var got []int
	hook.Guard1(g, "", func(a int) { got = append(got, a) })(1)
	hook.Guard2(g, "", func(a, b int) { got = append(got, a, b) })(2, 3)
	hook.Guard3(g, "", func(a, b, c int) { got = append(got, a, b, c) })(4, 5, 6)
	if !slices.Equal(got, []int{1, 2, 3, 4, 5, 6}) || len(*told) > 0 {
		t.Errorf("got %v and failures %v, want 1 to 6 and none", got, *told)
	}
	if hook.Guard1[int](g, "", nil) != nil || hook.Guard2[int, int](g, "", nil) != nil || hook.Guard3[int, int, int](g, "", nil) != nil {
		t.Error("a nil hook: got a function, want nil")
	}
}

func TestCallTellsWhetherTheHookReturned(t *testing.T) {
	g, told := newGuard()
	if g.Call("a", breaks) || g.Call("b", func() { panic(null) }) || !g.Call("c", func() {}) {
		t.Error("what returned and what did not is mixed up")
	}
	if len(*told) != 2 {
		t.Fatalf("got failures %v, want 2", *told)
	}
	if _, ok := (*told)[1].Value.(*runtime.PanicNilError); !ok {
		t.Errorf("panic(nil): got value %v, want a PanicNilError", (*told)[1].Value)
	}
}

// A hook that always fails is reported at once, and then at intervals with a count.
func TestAFloodOfFailuresIsThinned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, told := newGuard()
		for range 25 {
			g.Call("one", breaks)
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
