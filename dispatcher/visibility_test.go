package dispatcher

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/queue"
)

// V-05: the visibility follows the handling times.
func TestVisibilityIsTwiceThe95thPercentileWithinBounds(t *testing.T) {
	bounds, err := Visibility{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	f := newVisibilityEstimator(bounds)
	if f.forDequeue(0) != 30*time.Second {
		t.Errorf("first visibility: got %v, want 30s", f.forDequeue(0))
	}
	record := func(n int, d time.Duration) {
		for range n {
			f.recordHandling(d)
		}
	}
	record(256, time.Millisecond)
	if f.forDequeue(0) != 10*time.Second {
		t.Errorf("for quick handlers: got %v, want the minimum", f.forDequeue(0))
	}
	record(256, 20*time.Second)
	if f.forDequeue(0) != 40*time.Second {
		t.Errorf("for 20 s: got %v, want 40s", f.forDequeue(0))
	}
	record(12, time.Hour) // fewer than one in twenty
	record(244, 20*time.Second)
	if f.forDequeue(0) != 40*time.Second {
		t.Errorf("with few outliers: got %v, want 40s", f.forDequeue(0))
	}
	record(256, time.Hour)
	if f.forDequeue(0) != 10*time.Minute {
		t.Errorf("for an hour: got %v, want the maximum", f.forDequeue(0))
	}
}

// V-05: handling times are not sorted while handlers are short; the result is the same.
func TestTheVisibilityIsThatOfTheSortedTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bounds, err := Visibility{}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		f := newVisibilityEstimator(bounds)
		times := rapid.SliceOfN(rapid.OneOf(
			rapid.Int64Range(0, int64(2*briefHandling)), rapid.Int64Range(0, int64(time.Minute)),
		), recompute, 600).Draw(t, "times")
		for i, d := range times {
			f.recordHandling(time.Duration(d))
			if (i+1)%recompute != 0 {
				continue
			}
			last := slices.Sorted(slices.Values(times[max(0, i+1-len(f.recent)) : i+1]))
			p95 := time.Duration(last[len(last)*95/100])
			if want := wholeSeconds(min(max(2*p95, bounds.Min), bounds.Max)); f.forDequeue(0) != want {
				t.Fatalf("visibility after %d: got %v, want %v", i+1, f.forDequeue(0), want)
			}
			if want := max(defaultLinger, p95/5); max(defaultLinger, f.handlingTime()/5) != want {
				t.Fatalf("linger after %d: got %v, want %v", i+1, f.handlingTime()/5, want)
			}
		}
	})
}

func TestVisibilityIsAlwaysWholeSecondsWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		minimum := time.Duration(rapid.Int64Range(int64(MinVisibility), int64(time.Hour)).Draw(t, "min"))
		maximum := minimum + time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "span"))
		first := time.Duration(rapid.Int64Range(int64(time.Second), int64(time.Hour)).Draw(t, "first"))
		bounds, err := Visibility{Min: minimum, Max: maximum, First: first}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		f := newVisibilityEstimator(bounds)
		for range rapid.IntRange(0, 300).Draw(t, "n") {
			f.recordHandling(time.Duration(rapid.Int64Range(0, int64(2*time.Hour)).Draw(t, "handling")))
		}
		if v := f.forDequeue(0); v < minimum || v > wholeSeconds(maximum) || v%time.Second != 0 {
			t.Fatalf("got %v, want whole seconds within %v…%v", v, minimum, maximum)
		}
	})
}

func TestBadVisibilitiesAreRefused(t *testing.T) {
	for _, bad := range []Visibility{
		{Min: time.Second}, {Max: time.Second}, {Max: queue.MaxVisibility + 1}, {Min: time.Minute, Max: 30 * time.Second}, {First: -1}, {First: 30},
	} {
		if _, err := bad.withDefaults(); err == nil {
			t.Errorf("%+v: got no error, want one", bad)
		}
	}
	if v := FixedVisibility(time.Second); v.First != MinVisibility || v.Min != MinVisibility || v.Max != MinVisibility {
		t.Errorf("FixedVisibility(1 s): got %+v, want %v: a shorter lease could not be renewed", v, MinVisibility)
	}
}

// Leases that were too short raise the visibility to twice what they asked for, however many
// there are, for as long as it would be too short otherwise, and at most to Max.
func TestLeasesThatAreTooShortRaiseTheVisibility(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bounds, err := Visibility{}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		f := newVisibilityEstimator(bounds)
		for range 256 {
			f.recordHandling(time.Millisecond)
		}
		check := func(when string, want time.Duration) {
			t.Helper()
			if got := f.forDequeue(0); got != want {
				t.Errorf("%s: got %v, want %v", when, got, want)
			}
		}
		for range 8 {
			f.recordLate(10 * time.Second)
		}
		check("eight are late", 20*time.Second)
		f.recordLate(10 * time.Second)
		check("another one with the same visibility", 20*time.Second)
		f.recordTooShort(20 * time.Second)
		check("the next is too short", 40*time.Second)
		for range 256 {
			f.recordHandling(time.Millisecond)
		}
		check("many short handlers", 40*time.Second)
		if f.lateCount() != 9 {
			t.Errorf("lateCount: got %d, want 9", f.lateCount())
		}
		f.recordLate(9 * time.Minute)
		check("a very long one is late", bounds.Max)
		time.Sleep(calmPeriod - 1)
		check("shortly before the calm period ends", bounds.Max)
		time.Sleep(time.Nanosecond)
		check("after a calm period", 5*time.Minute)
		time.Sleep(calmPeriod)
		f.recordLate(10 * time.Second) // less than the visibility in force
		check("after two calm periods", 150*time.Second)
		time.Sleep(4 * calmPeriod)
		check("after six", 10*time.Second)
		time.Sleep(100 * calmPeriod)
		f.recordLate(10 * time.Second)
		check("another one is late", 20*time.Second)
		f.recordHandling(time.Minute)
		for range 255 {
			f.recordHandling(time.Minute)
		}
		check("handlers that take longer than that", 2*time.Minute)
	})
}

// A response that takes half of the visibility raises it; one that would take half of a lower
// visibility keeps it from falling.
func TestSlowResponsesRaiseTheVisibilityAndKeepIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bounds, err := Visibility{First: 10 * time.Second}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		f := newVisibilityEstimator(bounds)
		f.recordDequeue(5*time.Second-1, 10*time.Second)
		if f.forDequeue(0) != 10*time.Second {
			t.Errorf("less than half of it: got %v, want %v", f.forDequeue(0), 10*time.Second)
		}
		f.recordDequeue(5*time.Second, 10*time.Second)
		if f.forDequeue(0) != 20*time.Second {
			t.Errorf("half of it: got %v, want %v", f.forDequeue(0), 20*time.Second)
		}
		for range 10 {
			time.Sleep(calmPeriod - 1)
			f.recordDequeue(5*time.Second, 20*time.Second)
		}
		if f.forDequeue(0) != 20*time.Second {
			t.Errorf("a quarter of it: got %v, want %v", f.forDequeue(0), 20*time.Second)
		}
		time.Sleep(calmPeriod - 1)
		f.recordDequeue(5*time.Second-1, 20*time.Second)
		time.Sleep(time.Nanosecond)
		if f.forDequeue(0) != 10*time.Second {
			t.Errorf("less than a quarter of it: got %v, want %v", f.forDequeue(0), 10*time.Second)
		}
	})
}

// Renewals ask for as long as the handler has run, and for longer when many leases are held,
// within Max.
func TestRenewalsAskForLongerWithLongAndWithManyHandlers(t *testing.T) {
	bounds, err := Visibility{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	f := newVisibilityEstimator(bounds)
	for _, c := range []struct {
		held int
		ran  time.Duration
		want time.Duration
	}{
		{1, 0, 30 * time.Second},
		{1, 30 * time.Second, 30 * time.Second},
		{1, 95500 * time.Millisecond, 96 * time.Second},
		{1, time.Hour, bounds.Max},
		{7500, 0, 30 * time.Second},
		{40_000, 0, 160 * time.Second},
		{40_000, 3 * time.Minute, 3 * time.Minute},
		{1_000_000, 0, bounds.Max},
	} {
		if got := f.forRenewal(c.held, c.ran); got != c.want {
			t.Errorf("%d leases, after %v: got %v, want %v", c.held, c.ran, got, c.want)
		}
	}
	fixed := newVisibilityEstimator(FixedVisibility(30 * time.Second))
	if got := fixed.forRenewal(40_000, time.Hour); got != 30*time.Second {
		t.Errorf("fixed visibility: got %v, want 30s", got)
	}
}

func TestABoundOfTheVisibilityMovesTheDefaultOfTheOther(t *testing.T) {
	for _, c := range []struct{ given, want Visibility }{
		{Visibility{Max: 7 * time.Second}, Visibility{First: 7 * time.Second, Min: 7 * time.Second, Max: 7 * time.Second}},
		{Visibility{Min: time.Hour}, Visibility{First: time.Hour, Min: time.Hour, Max: time.Hour}},
		{Visibility{Max: time.Minute}, Visibility{First: 30 * time.Second, Min: 10 * time.Second, Max: time.Minute}},
	} {
		if got, err := c.given.withDefaults(); err != nil || got != c.want {
			t.Errorf("%+v: got %+v, error %v; want %+v", c.given, got, err, c.want)
		}
	}
}
