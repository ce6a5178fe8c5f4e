package books

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// M-05, M-06: a batch is stored for reports, and a repetition changes nothing.
func TestABatchIsRecordedOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		b := opened(t, address)
		d := made("first", 3)
		recorded(t, b, d)
		before := read(t, b)
		if len(before.batches) != 1 || len(before.rejections) != 2 || len(before.totals) != 6 {
			t.Fatalf("got %+v, want a batch with 6 sums and 2 rejections", before)
		}
		if got := before.batches[0]; got != d.batch || got.Rejected != 2 || got.Reported.Before(time.Now().Add(-time.Minute)) {
			t.Errorf("got %+v, want %+v", got, d.batch)
		}
		want := Rejection{Rejection: d.part.Rejected[1], Batch: "first"}
		want.File = "first.csv"
		if got := before.rejections[1]; got != want {
			t.Errorf("got the rejection %+v, want %+v", got, want)
		}
		for range 2 {
			if first, err := made("first", 3).record(t.Context(), b); err != nil || first {
				t.Errorf("once more: got first %v and error %v", first, err)
			}
		}
		if after := read(t, b); !reflect.DeepEqual(after, before) {
			t.Errorf("it was changed from %+v to %+v", before, after)
		}
	})
}

// M-06: a record is billed in the first batch that has its id, whatever else has it later. A rejected one can still be billed.
func TestARecordIsBilledOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		b := opened(t, address)
		recorded(t, b, made("first", 300))
		again := made("again", 301)
		for n := range 600 { // all of the first, one with another amount, and one twice
			again.part.Charged[n].ID = fmt.Sprint("first/", n)
		}
		again.part.Charged[0].Amount = again.part.Charged[1].Amount
		again.part.Charged[601].ID = again.part.Charged[600].ID
		again.add("account-00000", "water", "EUR", "1", "7")
		again.part.Charged[602].ID = "first/600" // a rejected line
		recorded(t, b, again)
		c := read(t, b)
		if got := c.batches[0]; got.Name != "again" || got.Billed() != 2 || got.Rejected != 603 {
			t.Errorf("got %+v, want 2 billed and 603 rejected", got)
		}
		reasons := make(map[string]int)
		for _, r := range c.rejections {
			if r.Batch == "again" && strings.Contains(r.Reason, "billed already") {
				reasons["earlier batch"]++
				if r.Reason != "the id "+r.ID+" is billed already, in batch first" || r.BilledIn != "first" || !strings.HasPrefix(r.Text, r.ID+",2026-11-21T06:30:00.123456Z,account-") {
					t.Errorf("got %+v, want its id, its batch and its line", r)
				}
			} else if r.Reason == "the id again/600 is on an earlier line of this batch" {
				reasons["earlier line"]++
			}
			if r.ID == "first/600" && r.Batch == "first" && r.BilledIn != "again" {
				t.Errorf("got %+v, want that it is billed since", r)
			}
		}
		if want := map[string]int{"earlier batch": 600, "earlier line": 1}; !reflect.DeepEqual(reasons, want) {
			t.Errorf("rejections: got %v, want %v", reasons, want)
		}
		if want := "account-00000 water EUR: 2, 3.5, 7.1"; c.totals[1] != want {
			t.Errorf("got %q, want %q", c.totals[1], want)
		}
	})
}

// M-07: sums are exact and do not depend on the order of batches.
func TestSumsAreExactInAnyOrder(t *testing.T) {
	amounts := []string{"0.1", "99999999999999999999.999", "0.2", "-99999999999999999999.999", "0.000000001", "7"}
	for _, order := range [][]int{{0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}, {1, 5, 0, 3, 2, 4}} {
		onBoth(t, func(t *testing.T, address string) {
			b := opened(t, address)
			for _, n := range order {
				d := made(fmt.Sprint("batch-", n), 0)
				d.add("account", "water", "EUR", amounts[n], amounts[n])
				recorded(t, b, d)
			}
			want := []string{"account water EUR: 6, 7.300000001, 7.300000001"} // 1e20 would swallow the rest of a binary fraction
			if got := read(t, b).totals; !slices.Equal(got, want) {
				t.Errorf("in the order %v: got %q, want %q", order, got, want)
			}
		})
	}
}

func TestOrderIsThatOfBytes(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		b := opened(t, address)
		d := made("batch", 0)
		names := []string{"B", "a", "_", "ä", "Z", "-", "z"}
		for _, account := range names {
			d.add(account, "water", "EUR", "1", "1")
		}
		recorded(t, b, d)
		var want []string
		for _, account := range slices.Sorted(slices.Values(names)) {
			want = append(want, account+" water EUR: 1, 1, 1")
		}
		if got := read(t, b).totals; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// The rows of large batches take several statements.
func TestLargeBatchesAreRecordedWhole(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		b := opened(t, address)
		for _, accounts := range []int{rowsAtOnce / 2, rowsAtOnce/2 + 1, 3 * rowsAtOnce} {
			d := made(fmt.Sprint("batch-", accounts), accounts)
			for range 2*rowsAtOnce - 2 {
				d.reject("the tariff is not known")
			}
			recorded(t, b, d)
		}
		c := read(t, b)
		if len(c.totals) != 2*3*rowsAtOnce || len(c.rejections) != 3*2*rowsAtOnce {
			t.Errorf("got %d sums and %d rejections", len(c.totals), len(c.rejections))
		}
	})
}

// M-05: of several that record the same batches at the same time one is the first, and records with the same ids are billed once.
func TestTwoControllersRecordABatchOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		controllers := make([]*Books, 4)
		var group sync.WaitGroup
		for n := range controllers { // the tables are made at the same time too
			group.Go(func() {
				var err error
				if controllers[n], err = Open(t.Context(), address); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if t.Failed() {
			t.FailNow()
		}
		const batches = 12
		var firsts [batches]atomic.Int64
		for c, b := range controllers {
			group.Go(func() {
				defer b.Close()
				for n := range batches {
					d := made(fmt.Sprint("batch-", (n+c)%batches), 20)
					d.add("shared", "water", "EUR", "1", "1")
					d.part.Charged[40].ID = "shared"
					first, err := d.record(t.Context(), b)
					if err != nil {
						t.Error(err)
					}
					if first {
						firsts[(n+c)%batches].Add(1)
					}
				}
			})
		}
		group.Wait()
		for n := range firsts {
			if got := firsts[n].Load(); got != 1 {
				t.Errorf("batch %d was the first %d times", n, got)
			}
		}
		c := read(t, opened(t, address))
		if last := c.totals[len(c.totals)-1]; len(c.batches) != batches || len(c.totals) != 41 || last != "shared water EUR: 1, 1, 1" || len(c.rejections) != 3*batches-1 {
			t.Errorf("got %d batches, %d sums with %q, and %d rejections", len(c.batches), len(c.totals), last, len(c.rejections))
		}
	})
}

// checkWhole checks that there are so many batches of made, each of them whole and once.
func checkWhole(t *testing.T, b *Books, batches, accounts int) {
	t.Helper()
	c := read(t, b)
	if len(c.batches) != batches || len(c.rejections) != 2*batches {
		t.Errorf("got %d batches and %d rejections, want %d and two each", len(c.batches), len(c.rejections), batches)
	}
	if batches == 0 {
		return
	}
	want := fmt.Sprintf("account-00000 water EUR: %d, ", batches)
	if len(c.totals) != 2*accounts || !strings.HasPrefix(c.totals[1], want) {
		t.Errorf("got %d sums, the second of them %q, want %d and %q", len(c.totals), c.totals[1], 2*accounts, want)
	}
}

// A report agrees with itself while a controller records.
func TestASnapshotShowsOneMoment(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		controller, reporter := opened(t, address), opened(t, address)
		recorded(t, controller, made("batch-0", 2))
		err := reporter.Read(t.Context(), func(s *Snapshot) error {
			before, err := contentOf(t, s)
			recorded(t, controller, made("batch-1", 2))
			after, err2 := contentOf(t, s)
			if len(before.batches) != 1 || !reflect.DeepEqual(before, after) {
				t.Errorf("got %+v, then %+v", before, after)
			}
			return errors.Join(err, err2)
		})
		if err != nil {
			t.Fatal(err)
		}
		checkWhole(t, reporter, 2, 2)
	})
}

// A batch that does not add up is not stored, and neither is one whose parts cannot be read, or that is cancelled.
func TestABatchIsRecordedWholeOrNotAtAll(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		b := opened(t, address)
		for name, change := range map[string]func(*day){
			"a record is missing":    func(d *day) { d.batch.Records++ },
			"a record is twice":      func(d *day) { d.add("account-00000", "water", "EUR", "1", "1"); d.batch.Records-- },
			"a rejection is missing": func(d *day) { d.part.Rejected = d.part.Rejected[1:] },
		} {
			d := made("batch", 2)
			change(d)
			if first, err := d.record(t.Context(), b); !errors.Is(err, ErrInvalid) || first {
				t.Errorf("%s: got %v, %v", name, first, err)
			}
		}
		broken := errors.New("the store is away")
		first, err := b.Record(t.Context(), &Batch{Name: "batch", HandedOver: start}, func(yield func(*Part, error) bool) {
			_ = yield(&made("batch", 2).part, nil) && yield(nil, broken)
		})
		if !errors.Is(err, broken) || first {
			t.Errorf("got %v, %v, want the error of the parts", first, err)
		}
		ctx, cancel := testContext(t)
		cancel()
		if first, err := made("batch", 2).record(ctx, b); err == nil || first {
			t.Errorf("cancelled: got %v, %v, want an error", first, err)
		}
		checkWhole(t, b, 0, 0)
		recorded(t, b, made("batch", 2))
	})
}

func TestReadingReturnsTheErrorOfItsCaller(t *testing.T) {
	b := opened(t, filepath.Join(t.TempDir(), "books.db"))
	mine := errors.New("mine")
	if err := b.Read(t.Context(), func(*Snapshot) error { return mine }); !errors.Is(err, mine) {
		t.Errorf("got %v", err)
	}
}
