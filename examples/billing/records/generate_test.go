package records

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"iter"
	"testing"
	"time"
)

// usageFile returns records as a usage file.
func usageFile(all iter.Seq[Record]) io.Reader {
	r, w := io.Pipe()
	go func() {
		line := append(appendFields(nil, Columns...), '\n')
		_, err := w.Write(line)
		for record := range all {
			if err == nil {
				_, err = w.Write(appendRecord(line[:0], &record))
			}
		}
		w.CloseWithError(err)
	}()
	return r
}

// TestTheSameSeedGivesTheSameRecordsEverywhere compares with hashes of what was generated first.
func TestTheSameSeedGivesTheSameRecordsEverywhere(t *testing.T) {
	for _, c := range []struct {
		seed          uint64
		records, days int
		want          string
	}{
		{1, 10_000, 3, "f9eb0198b79b6b473c541d7e702ae14c4f9abffc40aca0019e305c6a6b6f36c8"},
		{2, 10_000, 3, "a9f1bc235e58d503eb09acf387349a89079b75d38e1694975a8abb621804cb23"},
		{1, 0, 3, "bb1850703b2127edc08d0f0397a1764acc7f6626b5a102cb67cb300685c3405e"},
	} {
		hash := sha256.New()
		if _, err := io.Copy(hash, usageFile(Generate(c.seed, c.records, c.days))); err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(hash.Sum(nil)); got != c.want {
			t.Errorf("seed %d, %d records in %d days: got %s, want %s", c.seed, c.records, c.days, got, c.want)
		}
	}
}

func TestGeneratedRecordsAreLikeRealOnes(t *testing.T) {
	if testing.Short() {
		t.Skip("generates many records")
	}
	const want, days = 100_003, 30
	perDay, ids, used := make(map[string]int), make(map[string]bool), make(map[string]bool)
	tariffs := make(map[string]bool)
	n, ties := 0, 0
	var last time.Time
	for r := range Generate(7, want, days) {
		n++
		if r.Line != n+1 {
			t.Fatalf("record %d: got line %d, want %d", n, r.Line, n+1)
		}
		if r.Time.Before(last) {
			t.Errorf("%s: got the time %s after %s, want order", r.ID, r.Time, last)
		}
		last = r.Time
		perDay[r.Time.Format(time.DateOnly)]++
		if ids[r.ID] {
			t.Errorf("got the id %s twice", r.ID)
		}
		ids[r.ID], used[r.Account], tariffs[r.Tariff] = true, true, true
		p := BuiltInTariffs()[r.Tariff]
		_, amount, err := BuiltInTariffs().Charge(&r)
		if err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
		if exact := r.Quantity.Mul(p.Price); exact.Sub(amount).Abs().Shift(minorDigits[p.Currency]).String() == "0.5" {
			ties++
		}
	}
	if n != want || len(perDay) != days {
		t.Errorf("got %d records in %d days, want %d in %d", n, len(perDay), want, days)
	}
	for day, records := range perDay {
		if records < want/days || records > want/days+1 {
			t.Errorf("%s: got %d records, want them spread evenly", day, records)
		}
	}
	if _, found := perDay["2026-11-30"]; !found {
		t.Error("got no record of 2026-11-30, want the days from 2026-11-01 on")
	}
	if len(used) < accounts*9/10 {
		t.Errorf("accounts: got %d, want most of %d", len(used), accounts)
	}
	if all := len(BuiltInTariffs()); len(tariffs) != all {
		t.Errorf("tariffs: got %d, want all %d", len(tariffs), all)
	}
	if ties < want/100 {
		t.Errorf("amounts in the middle of two: got %d, want at least one in a hundred", ties)
	}
}

func TestGenerateTakesAnyNumbers(t *testing.T) {
	for _, c := range []struct{ records, days, want, inDays int }{
		{0, 30, 0, 0}, {-5, 30, 0, 0}, {3, 0, 3, 1}, {3, -1, 3, 1}, {3, 10, 3, 3}, {1, 1, 1, 1},
	} {
		n, days := 0, make(map[string]bool)
		for r := range Generate(1, c.records, c.days) {
			n++
			days[r.Time.Format(time.DateOnly)] = true
		}
		if n != c.want || len(days) != c.inDays {
			t.Errorf("%d records, %d days: got %d in %d, want %d in %d", c.records, c.days, n, len(days), c.want, c.inDays)
		}
	}
	for range Generate(1, 10, 1) {
		break
	}
}
