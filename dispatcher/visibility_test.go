package dispatcher

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/queue"
)

// V-05.
func TestVisibilityIsTwiceThe95thPercentileWithinBounds(t *testing.T) {
	bounds, err := Visibility{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	f := newVisibilityEstimator(bounds)
	if f.forDequeue(0) != 30*time.Second {
		t.Errorf("first %v", f.forDequeue(0))
	}
	record := func(n int, d time.Duration) {
		for range n {
			f.recordHandling(d)
		}
	}
	record(256, time.Millisecond)
	if f.forDequeue(0) != 10*time.Second {
		t.Errorf("for quick handlers %v, want the minimum", f.forDequeue(0))
	}
	record(256, 20*time.Second)
	if f.forDequeue(0) != 40*time.Second {
		t.Errorf("for 20 s %v, want 40 s", f.forDequeue(0))
	}
	record(12, time.Hour) // under one in twenty
	record(244, 20*time.Second)
	if f.forDequeue(0) != 40*time.Second {
		t.Errorf("with few outliers %v, want 40 s", f.forDequeue(0))
	}
	record(256, time.Hour)
	if f.forDequeue(0) != 10*time.Minute {
		t.Errorf("for an hour %v, want the maximum", f.forDequeue(0))
	}
}

// V-05: nothing is sorted while handlers are brief; the result is the same.
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
				t.Fatalf("after %d: visibility %v, want %v", i+1, f.forDequeue(0), want)
			}
			if want := max(defaultLinger, p95/5); max(defaultLinger, f.handlingTime()/5) != want {
				t.Fatalf("after %d: linger by %v, want %v", i+1, f.handlingTime()/5, want)
			}
		}
	})
}

func TestVisibilityIsAlwaysWholeSecondsWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		minimum := time.Duration(rapid.Int64Range(int64(MinVisibility), int64(time.Hour)).Draw(t, "min"))
		maximum := minimum + time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "span"))
		bounds, err := Visibility{Min: minimum, Max: maximum, First: time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "first"))}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		f := newVisibilityEstimator(bounds)
		for range rapid.IntRange(0, 300).Draw(t, "n") {
			f.recordHandling(time.Duration(rapid.Int64Range(0, int64(2*time.Hour)).Draw(t, "handling")))
		}
		if v := f.forDequeue(0); v < minimum || v > wholeSeconds(maximum) || v%time.Second != 0 {
			t.Fatalf("visibility %v for %v…%v", v, minimum, maximum)
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
	if v := Fixed(time.Second); v.First != MinVisibility || v.Min != MinVisibility || v.Max != MinVisibility {
		t.Errorf("a second became %+v, want %v: a shorter lease could not be renewed", v, MinVisibility)
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
		check := func(what string, want time.Duration) {
			t.Helper()
			if got := f.forDequeue(0); got != want {
				t.Errorf("%s: visibility %v, want %v", what, got, want)
			}
		}
		for range 8 {
			f.recordLate(10 * time.Second)
		}
		check("eight are late", 20*time.Second)
		f.recordLate(10 * time.Second)
		check("another that was asked for before", 20*time.Second)
		f.recordTooShort(20 * time.Second)
		check("the next is too short", 40*time.Second)
		for range 256 {
			f.recordHandling(time.Millisecond)
		}
		check("many that are brief", 40*time.Second)
		if f.lateCount() != 9 {
			t.Errorf("%d late", f.lateCount())
		}
		f.recordLate(9 * time.Minute)
		check("a very long one is late", bounds.Max)
		time.Sleep(calmPeriod - 1)
		check("shortly before it is calm", bounds.Max)
		time.Sleep(time.Nanosecond)
		check("when it is calm", 5*time.Minute)
		time.Sleep(calmPeriod)
		f.recordLate(10 * time.Second) // of which it makes no more
		check("twice as long", 150*time.Second)
		time.Sleep(4 * calmPeriod)
		check("and longer", 10*time.Second)
		time.Sleep(100 * calmPeriod)
		f.recordLate(10 * time.Second)
		check("and for the first time again", 20*time.Second)
		f.recordHandling(time.Minute)
		for range 255 {
			f.recordHandling(time.Minute)
		}
		check("handlers that take longer than that", 2*time.Minute)
	})
}

// An answer that takes half the visibility raises it; one that would take half of a lower
// visibility keeps it up.
func TestSlowAnswersRaiseTheVisibilityAndKeepItUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bounds, err := Visibility{First: 10 * time.Second}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		f := newVisibilityEstimator(bounds)
		f.recordDequeue(5*time.Second-1, 10*time.Second)
		if f.forDequeue(0) != 10*time.Second {
			t.Errorf("under half of it: visibility %v", f.forDequeue(0))
		}
		f.recordDequeue(5*time.Second, 10*time.Second)
		if f.forDequeue(0) != 20*time.Second {
			t.Errorf("half of it: visibility %v", f.forDequeue(0))
		}
		for range 10 {
			time.Sleep(calmPeriod - 1)
			f.recordDequeue(5*time.Second, 20*time.Second)
		}
		if f.forDequeue(0) != 20*time.Second {
			t.Errorf("a quarter of it: visibility %v", f.forDequeue(0))
		}
		time.Sleep(calmPeriod - 1)
		f.recordDequeue(5*time.Second-1, 20*time.Second)
		time.Sleep(time.Nanosecond)
		if f.forDequeue(0) != 10*time.Second {
			t.Errorf("under a quarter of it: visibility %v", f.forDequeue(0))
		}
	})
}

// Renewals ask for as long as the handler has run, and for more when many leases are held,
// within Max.
func TestRenewalsAskForMoreOfLongAndOfManyHandlers(t *testing.T) {
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
			t.Errorf("%d leases, after %v: visibility %v, want %v", c.held, c.ran, got, c.want)
		}
	}
	fixed := newVisibilityEstimator(Fixed(30 * time.Second))
	if got := fixed.forRenewal(40_000, time.Hour); got != 30*time.Second {
		t.Errorf("a fixed visibility became %v", got)
	}
}
