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

	"github.com/millrace/millrace/examples/billing/totals"
)

// M-05, M-06: results are stored for reports, and a repeated one changes nothing.
func TestABatchIsRecordedOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		b := opened(t, address)
		recorded(t, b, made("2026-11-21", 3))
		before := read(t, b)
		if len(before.batches) != 1 || len(before.rejections) != 2 || len(before.totals) != 6 {
			t.Fatalf("got %+v, want a batch with 6 sums and 2 rejections", before)
		}
		want := made("2026-11-21", 3).batch
		want.Rejected = 2
		if got := before.batches[0]; got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if got := before.rejections[1]; got.Batch != "2026-11-21" || got.Line != made("2026-11-21", 0).rejections[1] {
			t.Errorf("got the rejection %+v", got)
		}
		for range 2 {
			if first, err := made("2026-11-21", 3).record(t.Context(), b); err != nil || first {
				t.Errorf("once more: got first %v and error %v", first, err)
			}
		}
		if after := read(t, b); !reflect.DeepEqual(after, before) {
			t.Errorf("it was changed from %+v to %+v", before, after)
		}
	})
}

// A day that other books, or another store, know nothing of may be shipped with other records: they are not taken for recorded.
func TestAnotherBatchOfTheSameNameIsRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		b := opened(t, address)
		recorded(t, b, made("2026-11-21", 3))
		before := read(t, b)
		for what, change := range map[string]func(*day){
			"more records": func(d *day) { d.add("account-9", "water", "EUR", "1", "1") },
			"a rejection for a record": func(d *day) {
				d.reject(10, "it is missing")
				d.batch.Records--
				d.sums = made("2026-11-21", 2).sums
				d.add("account-00002", "water", "EUR", "2.5", "0.10")
				d.batch.Records--
			},
			"another account": func(d *day) {
				d.sums = made("2026-11-21", 2).sums
				d.add("account-9", "water", "EUR", "2.5", "0.10")
				d.add("account-9", "power", "KWD", "0.000000001", "99999999999999999999.999")
				d.batch.Records -= 2
			},
			"another amount": func(d *day) {
				d.sums = made("2026-11-21", 2).sums
				d.add("account-00002", "water", "EUR", "2.5", "0.11")
				d.add("account-00002", "power", "KWD", "0.000000001", "99999999999999999999.999")
				d.batch.Records -= 2
			},
		} {
			other := made("2026-11-21", 3)
			change(other)
			if first, err := other.record(t.Context(), b); !errors.Is(err, ErrInvalid) || first || !strings.Contains(err.Error(), "another batch of this name") {
				t.Errorf("%s: got first %v and error %v, want that it is another batch", what, first, err)
			}
		}
		if after := read(t, b); !reflect.DeepEqual(after, before) {
			t.Errorf("it was changed from %+v to %+v", before, after)
		}
	})
}

// M-07: sums are exact and do not depend on the order of batches.
func TestSumsAreExactInAnyOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		b := opened(t, address)
		for n := range 10 { // ten times 0.10 is no 1 in binary fractions
			recorded(t, b, made(fmt.Sprint("batch-", 9-n), 2))
		}
		c := read(t, b)
		want := content{
			totals: []string{
				"account-00000 power KWD: 10, 0.00000001, 999999999999999999999.99", "account-00000 water EUR: 10, 25, 1",
				"account-00001 power KWD: 10, 0.00000001, 999999999999999999999.99", "account-00001 water EUR: 10, 25, 1",
			},
			accounts: []string{
				"account-00000  EUR: 10, 0, 1", "account-00000  KWD: 10, 0, 999999999999999999999.99",
				"account-00001  EUR: 10, 0, 1", "account-00001  KWD: 10, 0, 999999999999999999999.99",
			},
			tariffs:    []string{" power KWD: 20, 0.00000002, 1999999999999999999999.98", " water EUR: 20, 50, 2"},
			currencies: []string{"  EUR: 20, 0, 2", "  KWD: 20, 0, 1999999999999999999999.98"},
		}
		for _, one := range []struct{ got, want []string }{
			{c.totals, want.totals}, {c.accounts, want.accounts}, {c.tariffs, want.tariffs}, {c.currencies, want.currencies},
		} {
			if !slices.Equal(one.got, one.want) {
				t.Errorf("got  %q\nwant %q", one.got, one.want)
			}
		}
		if !slices.IsSortedFunc(c.batches, func(a, b Batch) int { return strings.Compare(a.Name, b.Name) }) {
			t.Error("the batches are not in order")
		}
	})
}

// TestOrderIsThatOfBytes: the order of PostgreSQL's rows otherwise depends on its locale.
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
			want = append(want, account+"  EUR: 1, 0, 1")
		}
		if got := read(t, b).accounts; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestLargeBatchesAreRecordedWhole: their rows take several statements.
func TestLargeBatchesAreRecordedWhole(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		b := opened(t, address)
		for _, accounts := range []int{insertedAtOnce / 2, insertedAtOnce/2 + 1, 3 * insertedAtOnce} {
			d := made(fmt.Sprint("batch-", accounts), accounts)
			for n := range 2*insertedAtOnce - 2 {
				d.reject(n, "the tariff is not known")
			}
			recorded(t, b, d)
		}
		c := read(t, b)
		if len(c.totals) != 2*3*insertedAtOnce || len(c.rejections) != 3*2*insertedAtOnce {
			t.Errorf("got %d sums and %d rejections", len(c.totals), len(c.rejections))
		}
	})
}

// TestTwoControllersRecordABatchOnce: of several that record the same batch at once one is the first.
func TestTwoControllersRecordABatchOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		controllers := make([]*Books, 4)
		var group sync.WaitGroup
		for n := range controllers { // also the tables are made at once
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
		for _, b := range controllers {
			group.Go(func() {
				defer b.Close()
				for n := range batches {
					first, err := made(fmt.Sprint("batch-", n), 20).record(t.Context(), b)
					if err != nil {
						t.Error(err)
					}
					if first {
						firsts[n].Add(1)
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
		checkWhole(t, opened(t, address), batches, 20)
	})
}

// checkWhole checks that there is a number of batches that made made, each of them whole and once.
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

// TestASnapshotShowsOneMoment: a report agrees with itself while a controller records.
func TestASnapshotShowsOneMoment(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		controller, reporter := opened(t, address), opened(t, address)
		recorded(t, controller, made("batch-0", 2))
		err := reporter.Read(t.Context(), func(s *Snapshot) error {
			batches := 0
			for _, err := range s.Batches(t.Context()) {
				if err != nil {
					return err
				}
				if batches == 0 { // in the middle of reading
					recorded(t, controller, made("batch-1", 2))
				}
				batches++
			}
			var sum Total
			for one, err := range s.Currencies(t.Context()) {
				if err != nil {
					return err
				}
				sum = one
			}
			if batches != 1 || sum.Records != 2 {
				t.Errorf("got %d batches and %d records, want those before", batches, sum.Records)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		checkWhole(t, reporter, 2, 2)
	})
}

func TestReadingReturnsTheErrorOfItsCaller(t *testing.T) {
	b := opened(t, filepath.Join(t.TempDir(), "books.db"))
	mine := errors.New("mine")
	if err := b.Read(t.Context(), func(*Snapshot) error { return mine }); !errors.Is(err, mine) {
		t.Errorf("got %v", err)
	}
}

func TestTheTimeOfTheReportIsTakenIfItIsNotGiven(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		b := opened(t, address)
		d := made("batch", 1)
		d.batch.Reported = time.Time{}
		before := time.Now().Truncate(time.Microsecond)
		recorded(t, b, d)
		if got := read(t, b).batches[0].Reported; got.Before(before) || got.After(time.Now()) {
			t.Errorf("got %v, want a time from %v on", got, before)
		}
	})
}

// TestInvalidBatchesAreRefused: what does not add up is not stored, and no repeat helps.
func TestInvalidBatchesAreRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		b := opened(t, address)
		for name, change := range map[string]func(*day){
			"a record is missing":      func(d *day) { d.batch.Records++ },
			"a record is twice":        func(d *day) { d.add("account-00000", "water", "EUR", "1", "1"); d.batch.Records-- },
			"a rejection is missing":   func(d *day) { d.rejections = d.rejections[1:] },
			"no name":                  func(d *day) { d.batch.Name = "" },
			"no time":                  func(d *day) { d.batch.HandedOver = time.Time{} },
			"negative items":           func(d *day) { d.batch.Items = -1 },
			"a name that is no text":   func(d *day) { d.batch.Name = "\xff" },
			"an account with NUL":      func(d *day) { d.add("a\x00b", "water", "EUR", "1", "1") },
			"a tariff that is no text": func(d *day) { d.add("a", "\xc0", "EUR", "1", "1") },
		} {
			d := made("batch", 2)
			change(d)
			if first, err := d.record(t.Context(), b); !errors.Is(err, ErrInvalid) || first {
				t.Errorf("%s: got %v, %v", name, first, err)
			}
		}
		checkWhole(t, b, 0, 0)
		if first, err := b.Record(t.Context(), &Batch{Name: "empty", HandedOver: start}, new(totals.Totals), nil); err != nil || !first {
			t.Errorf("a day without records: got %v, %v", first, err)
		}
	})
}

func TestTextsThatPeopleReadAreMadeStorable(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		b := opened(t, address)
		d := made("batch", 0)
		d.reject(11, "NUL \x00 and \xff, but 'quotes' and ☂")
		recorded(t, b, d)
		if got, want := read(t, b).rejections[2].Line.Reason, "NUL \ufffd and \ufffd, but 'quotes' and ☂"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestACancelledRecordLeavesNothing: also the next one has a usable connection.
func TestACancelledRecordLeavesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		b := opened(t, address)
		ctx, cancel := testContext(t)
		cancel()
		if first, err := made("batch", 2).record(ctx, b); err == nil || first {
			t.Errorf("got %v, %v, want an error", first, err)
		}
		checkWhole(t, b, 0, 0)
		recorded(t, b, made("batch", 2))
	})
}
