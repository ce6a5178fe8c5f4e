package replay

import (
	"reflect"
	"testing"
	"time"
)

// Every generated trace is right, peaks near the size's peak without exceeding it, and is the same for the same seed only.
func TestGeneratedTraces(t *testing.T) {
	for _, size := range []Size{Small(), Large()} {
		first, again, other := Generated(size, 1), Generated(size, 1), Generated(size, 2)
		if len(first) != 7 {
			t.Fatalf("got %d traces, want 7", len(first))
		}
		for i := range first {
			trace := &first[i]
			if err := trace.Check(); err != nil {
				t.Error(err)
			}
			peak, _ := trace.Peak()
			if peak > size.Peak || peak < 0.27*size.Peak {
				t.Errorf("%s: got a peak of %v, want at most %v and near it", trace.Name, peak, size.Peak)
			}
			if !reflect.DeepEqual(*trace, again[i]) || reflect.DeepEqual(trace.Arrivals, other[i].Arrivals) {
				t.Errorf("%s: want the same for the same seed, and another for another", trace.Name)
			}
		}
	}
	large := Large()
	if large.Peak < 100_000 || large.Max < 10_000 {
		t.Errorf("got a large size of %+v, want 100,000 messages a second and 10,000 instances", large)
	}
}

// M-01: several million records a day, in batches of several thousand to hundreds of thousands.
func TestTheBillingDay(t *testing.T) {
	trace := Billing(Small(), 1)
	records, batch := 0.0, 0.0
	var least, most float64 = 1e9, 0
	for _, n := range append(trace.Arrivals, 0) {
		records, batch = records+n, batch+n
		if n == 0 && batch > 0 {
			least, most, batch = min(least, batch), max(most, batch), 0
		}
	}
	if records < 2e6 || records > 9e6 || least < 5_000 || most < 200_000 || most > 999_999 || trace.Length() != 24*time.Hour {
		t.Errorf("got %v records in %v, in batches of %v to %v, want several million in a day, in batches of several thousand to hundreds of thousands", records, trace.Length(), least, most)
	}
}
