package dispatcher

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/queue"
)

func TestV05_VisibilityIsTwiceThe95thPercentileWithinBounds(t *testing.T) {
	bounds, err := Visibility{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	f := newFollower(bounds)
	if f.next() != 30*time.Second {
		t.Errorf("first %v", f.next())
	}
	record := func(n int, d time.Duration) {
		for range n {
			f.record(d)
		}
	}
	record(256, time.Millisecond)
	if f.next() != 10*time.Second {
		t.Errorf("for quick handlers %v, want the minimum", f.next())
	}
	record(256, 20*time.Second)
	if f.next() != 40*time.Second {
		t.Errorf("for 20 s %v, want 40 s", f.next())
	}
	record(12, time.Hour) // under one in twenty
	record(244, 20*time.Second)
	if f.next() != 40*time.Second {
		t.Errorf("with few outliers %v, want 40 s", f.next())
	}
	record(256, time.Hour)
	if f.next() != 10*time.Minute {
		t.Errorf("for an hour %v, want the maximum", f.next())
	}
}

// Nothing is sorted while handlers are brief: what comes out must be the same.
func TestV05_TheVisibilityIsThatOfTheSortedTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bounds, err := Visibility{}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		f := newFollower(bounds)
		times := rapid.SliceOfN(rapid.OneOf(
			rapid.Int64Range(0, int64(2*brief)), rapid.Int64Range(0, int64(time.Minute)),
		), recompute, 600).Draw(t, "times")
		for i, d := range times {
			f.record(time.Duration(d))
			if (i+1)%recompute != 0 {
				continue
			}
			last := slices.Sorted(slices.Values(times[max(0, i+1-len(f.recent)) : i+1]))
			p95 := time.Duration(last[len(last)*95/100])
			if want := wholeSeconds(min(max(2*p95, bounds.Min), bounds.Max)); f.next() != want {
				t.Fatalf("after %d: visibility %v, want %v", i+1, f.next(), want)
			}
			if want := max(DefaultLinger, p95/5); max(DefaultLinger, f.usual()/5) != want {
				t.Fatalf("after %d: linger by %v, want %v", i+1, f.usual()/5, want)
			}
		}
	})
}

func TestVisibilityIsAlwaysWholeSecondsWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		least := time.Duration(rapid.Int64Range(int64(LeastVisibility), int64(time.Hour)).Draw(t, "min"))
		most := least + time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "span"))
		bounds, err := Visibility{Min: least, Max: most, First: time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "first"))}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		f := newFollower(bounds)
		for range rapid.IntRange(0, 300).Draw(t, "n") {
			f.record(time.Duration(rapid.Int64Range(0, int64(2*time.Hour)).Draw(t, "handling")))
		}
		if v := f.next(); v < least || v > wholeSeconds(most) || v%time.Second != 0 {
			t.Fatalf("visibility %v for %v…%v", v, least, most)
		}
	})
}

func TestBadVisibilitiesAreRefused(t *testing.T) {
	for _, bad := range []Visibility{
		{Min: time.Second}, {Max: time.Second}, {Max: queue.MaxVisibility + 1}, {Min: time.Minute, Max: 30 * time.Second}, {First: -1},
	} {
		if _, err := bad.withDefaults(); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
	if v := Fixed(time.Second); v.First != LeastVisibility || v.Min != LeastVisibility || v.Max != LeastVisibility {
		t.Errorf("a second became %+v, want %v: a shorter lease could not be renewed", v, LeastVisibility)
	}
}
