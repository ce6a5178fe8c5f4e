package listener

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/queue"
)

// sharing returns options of a worker that writes what it finds, without idle polls that take long.
func sharing() *Options[job] {
	o := options()
	o.Metadata = WriteMetadata
	o.Fetch.Idle.Min, o.Fetch.Idle.Max = 10*time.Second, 10*time.Second
	return o
}

// taking returns a handler that takes this long.
func taking(d time.Duration) Handler[job] {
	return func(ctx context.Context, _ *Message[job]) error { return sleep(ctx, d) }
}

// keepBusy puts a batch of jobs each period.
func (b *bundle) keepBusy(periods int, period time.Duration) {
	b.Helper()
	for range periods {
		b.put(64)
		advance(period)
	}
}

// V-05, X-14: what a worker has found is in the metadata for those that start later, beside what
// others have put there, also meanwhile. It is written once.
func TestTheVisibilityThatWasFoundIsWhatOthersBeginWith(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates hours of two workers")
	}
	for _, name := range []string{"", "DefaultTimeout", "defaulttimeout"} {
		bubble(t, func(b *bundle) {
			q := b.managed()
			pairs := []string{"owner", "ada", "poisonthreshold", "9"}
			if name != "" {
				pairs = append(pairs, name, "20")
			}
			b.setMetadata(pairs...)
			b.run(New(q, taking(100*time.Second), sharing()))
			b.keepBusy(3, 2*time.Minute)
			pairs[3] = "3" // a person
			b.setMetadata(pairs...)
			b.keepBusy(57, 2*time.Minute)
			b.mustFinish()
			want := map[string]string{"owner": "ada", "poisonthreshold": "3", "defaulttimeout": "200"}
			if got := b.metadata(); !maps.Equal(got, want) {
				t.Errorf("%q: the metadata are %v, want %v", name, got, want)
			}
			writes := b.queue.sent("set metadata")
			if len(writes) != 1 || writes[0].at.Sub(b.begin) < sharingPeriod {
				t.Errorf("%q: written %+v, want once, after %v", name, writes, sharingPeriod)
			}

			later := b.managed()
			b.run(New(later, nothing, sharing()))
			advance(time.Second)
			b.mustFinish()
			if got := later.visibility(); got != 200*time.Second {
				t.Errorf("%q: a later worker begins with %v, want 200 s", name, got)
			}
		})
	}
}

// Nothing is written that is not much longer, over what cannot be read, without being asked to, or
// by a worker whose visibility does not follow handling times.
func TestAVisibilityThatIsNoNewsIsNotWritten(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates hours")
	}
	for name, c := range map[string]struct {
		timeout string
		set     func(*Options[job])
	}{
		"longer there":     {"300", func(*Options[job]) {}},
		"not half more":    {"134", func(*Options[job]) {}},
		"another's format": {"00:00:10", func(*Options[job]) {}},
		"read only":        {"20", func(o *Options[job]) { o.Metadata = ReadMetadata }},
		"ignored":          {"20", func(o *Options[job]) { o.Metadata = IgnoreMetadata }},
		"fixed":            {"20", func(o *Options[job]) { o.Lease.Visibility = FixedVisibility(time.Minute) }},
	} {
		bubble(t, func(b *bundle) {
			b.setMetadata("defaulttimeout", c.timeout)
			o := sharing()
			c.set(o)
			b.run(New(b.managed(), taking(100*time.Second), o))
			b.keepBusy(30, 2*time.Minute)
			b.mustFinish()
			if got := b.metadata()["defaulttimeout"]; got != c.timeout || len(b.queue.sent("set metadata")) != 0 {
				t.Errorf("%s: defaulttimeout is %s after %d writes, want %s and none", name, got, len(b.queue.sent("set metadata")), c.timeout)
			}
		})
	}
}

// A bad while is no reason for other workers to begin with more: leases that are too short for a few
// minutes are not written.
func TestAShortTroubleIsNotWritten(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates hours")
	}
	for _, slow := range []time.Duration{20 * time.Second, 40 * time.Second, 59 * time.Second} {
		bubble(t, func(b *bundle) {
			q := b.managed()
			b.queue.intercept = func(op string, act func() error) error {
				if since := time.Since(b.begin); op == "dequeue" && since > 5*time.Minute && since < 8*time.Minute {
					time.Sleep(slow) // more than half of the visibility
				}
				return act()
			}
			l := New(q, taking(time.Second), sharing())
			b.run(l)
			highest := time.Duration(0)
			for range 60 {
				b.keepBusy(1, time.Minute)
				highest = max(highest, l.State().Visibility)
			}
			b.mustFinish()
			if n := len(b.queue.sent("set metadata")); n != 0 || highest < 40*time.Second {
				t.Errorf("dequeues of %v: written %d times, highest visibility %v; want none, and at least 40 s", slow, n, highest)
			}
		})
	}
}

// A write that fails is reported and does no harm: the listener works on, and tries again ten minutes
// later at the earliest.
func TestAWriteOfMetadataThatFailsDoesNoHarm(t *testing.T) {
	bubble(t, func(b *bundle) {
		q := b.managed()
		var allowed atomic.Bool
		b.queue.intercept = func(op string, act func() error) error {
			if op == "set metadata" && !allowed.Load() {
				return &queue.Error{Op: op, Kind: queue.ErrUnauthorized, Status: 403}
			}
			return act()
		}
		var told errorList
		o := sharing()
		o.OnError = told.add
		l := New(q, taking(100*time.Second), o)
		b.run(l)
		b.keepBusy(50, 2*time.Minute)
		tries := b.queue.sent("set metadata")
		if len(tries) < 5 || len(tries) > 9 || told.count() != len(tries) || !errors.Is(told.at(0), queue.ErrUnauthorized) || l.State().Outcomes[Deleted] < 49*64 {
			t.Errorf("tried %d times, told %v, state %+v; want 5…9 tries, told of each, and all handled", len(tries), told.text(), l.State())
		}
		allowed.Store(true)
		b.keepBusy(10, 2*time.Minute)
		if got := b.metadata()["defaulttimeout"]; got != "200" {
			t.Errorf("after the permission was given: defaulttimeout is %q, want 200", got)
		}
		b.mustFinish()
	})
}

// Workers that find different visibilities do not take turns in writing.
func TestWorkersWithDifferentVisibilitiesDoNotTakeTurns(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates hours of two workers")
	}
	bubble(t, func(b *bundle) {
		q := b.managed()
		ctx, stop := context.WithCancel(b.Context())
		defer stop()
		done := make(chan error)
		for _, took := range []time.Duration{20 * time.Second, 40 * time.Second, 100 * time.Second} {
			l := New(q, taking(took), sharing())
			go func() { done <- l.Run(ctx) }()
		}
		b.keepBusy(720, 2*time.Minute)
		stop()
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if n := len(b.queue.sent("set metadata")); n < 1 || n > 3 || b.metadata()["defaulttimeout"] != "200" {
			t.Errorf("written %d times in a day, the last is %v; want at most 3 and 200", n, b.metadata())
		}
	})
}

// Of a fleet whose workers need any visibilities and read in any order, each write raises the value
// by half or more and keeps all else. So there are few of them, and then none, and in the end nobody
// needs half as much again as is there.
func TestAFleetWritesFewVisibilities(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		needs := rapid.SliceOfN(rapid.IntRange(0, 604800), 1, 20).Draw(t, "needs")
		metadata := map[string]string{"owner": "ada"}
		if begin := rapid.IntRange(0, 604800).Draw(t, "begin"); begin > 0 {
			metadata["DefaultTimeout"] = strconv.Itoa(begin)
		}
		value := func() int {
			n, err := settingIn(metadata, timeoutName, 604800)
			if err != nil || metadata["owner"] != "ada" || len(metadata) > 2 {
				t.Fatalf("the metadata are %v", metadata)
			}
			return n
		}
		writes := 0
		for _, i := range append(rapid.SliceOfN(rapid.IntRange(0, len(needs)-1), 0, 100).Draw(t, "order"), rapid.Permutation(sequence(len(needs))).Draw(t, "last")...) {
			before := value()
			if before == 0 {
				before = 30 // the default
			}
			written, ok := raised(metadata, time.Duration(needs[i])*time.Second)
			if !ok {
				continue
			}
			metadata = written
			if writes++; value() != needs[i] || 2*value() < 3*before {
				t.Fatalf("%d s was written over %d s, needed %d s", value(), before, needs[i])
			}
		}
		if writes > 25 { // 30 s · 1.5²⁵ is beyond the longest visibility
			t.Fatalf("written %d times", writes)
		}
		for _, need := range needs {
			if _, ok := raised(metadata, time.Duration(need)*time.Second); ok {
				t.Fatalf("a worker that needs %d s writes again over %v", need, metadata)
			}
		}
	})
}

func sequence(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// What counts is the lowest that was called for in ten minutes.
func TestAVisibilityIsSampledForTenMinutes(t *testing.T) {
	var v visibilitySharing
	now := time.Hour
	var got []string
	for i, found := range []int{9, 9, 9, 5, 9, 9, 9, 9, 9, 9, 9, 9, 8, 7, 9, 9, 9, 9, 9, 9, 9, 6, 9} {
		if lowest := v.sample(now+time.Duration(i)*time.Minute, time.Duration(found)*time.Second); lowest > 0 {
			got = append(got, fmt.Sprint(i, " ", lowest))
		}
	}
	if want := "[10 5s 20 7s]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestHalfAsMuchAgainIsWritten(t *testing.T) {
	for _, c := range []struct {
		there string
		found int
		want  bool
	}{{"100", 149, false}, {"100", 150, true}, {"", 44, false}, {"", 45, true}, {"", 0, false}, {"x", 1000, false}} {
		var read map[string]string
		if c.there != "" {
			read = map[string]string{timeoutName: c.there}
		}
		written, ok := raised(read, time.Duration(c.found)*time.Second)
		if ok != c.want || ok && written[timeoutName] != strconv.Itoa(c.found) || read[timeoutName] != c.there {
			t.Errorf("%d s over %q: got %v, %v; want %v, and what was read unchanged", c.found, c.there, written, ok, c.want)
		}
	}
}

// A person who lowers the visibility in the metadata sees that obeyed, also by a worker that is about to
// write what it had found before.
func TestAVisibilityThatAPersonLowersIsNotWrittenBack(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.queue.intercept = func(op string, act func() error) error {
			if op == "delete" {
				return queue.ErrReceiptMismatch // so that all leases are too short
			}
			return act()
		}
		b.setMetadata("defaulttimeout", "50")
		o := sharing()
		o.Lease.Visibility.Max = time.Minute
		b.run(New(b.managed(), nothing, o))
		late := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); advance(30 * time.Second) {
				b.put(2)
			}
		}
		late(19*time.Minute + 30*time.Second)
		b.setMetadata("defaulttimeout", "30")
		late(5 * time.Minute)
		b.mustFinish()
		if got := b.metadata()["defaulttimeout"]; got != "30" {
			t.Errorf("defaulttimeout is %s after %d writes, want 30 as the person has set it", got, len(b.queue.sent("set metadata")))
		}
	})
}
