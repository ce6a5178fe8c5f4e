package totals_test

import (
	"encoding/json"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/examples/billing/totals"
)

func text(t testing.TB, sums *totals.Totals) string {
	t.Helper()
	b, err := json.Marshal(sums)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// drawCharged draws charged records of few keys, with amounts of different decimals.
func drawCharged(rt *rapid.T) charged {
	amount := func(label string) decimal.Decimal {
		return decimal.New(rapid.Int64Range(-1e15, 1e18).Draw(rt, label), -rapid.Int32Range(0, 9).Draw(rt, label+" decimals"))
	}
	name := rapid.SampledFrom([]string{"a", "b", "é,\"<&>", "山"})
	return charged{
		key:      totals.Key{Account: name.Draw(rt, "account"), Tariff: name.Draw(rt, "tariff"), Currency: name.Draw(rt, "currency")},
		quantity: amount("quantity"), amount: amount("amount"),
	}
}

// TestTotalsDoNotDependOnOrderOrGroups: M-07. Any order, any groups, and any order of merging give the same bytes.
func TestTotalsDoNotDependOnOrderOrGroups(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		all := rapid.SliceOf(rapid.Custom(drawCharged)).Draw(rt, "records")
		want := text(t, sumOf(all))
		order := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "order"), 0))
		order.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		var parts []*totals.Totals
		for len(all) > 0 {
			n := 1 + order.IntN(len(all))
			parts = append(parts, sumOf(all[:n]))
			all = all[n:]
		}
		for len(parts) > 1 { // merge any two, one of them as it was stored
			order.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
			stored := new(totals.Totals)
			if err := json.Unmarshal([]byte(text(t, parts[0])), stored); err != nil {
				rt.Fatal(err)
			}
			before := text(t, parts[1])
			stored.Merge(parts[1])
			if after := text(t, parts[1]); after != before {
				rt.Errorf("what was merged: got %s, want %s as before", after, before)
			}
			parts = append(parts[2:], stored)
		}
		got := "[]"
		if len(parts) == 1 {
			got = text(t, parts[0])
		}
		if got != want {
			rt.Errorf("got %s, want %s", got, want)
		}
	})
}

// TestTotalsAreExact compares with big.Rat.
func TestTotalsAreExact(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		all := rapid.SliceOfN(rapid.Custom(drawCharged), 1, 50).Draw(rt, "records")
		type exact struct {
			records          int64
			quantity, amount *big.Rat
		}
		want := make(map[totals.Key]exact)
		for _, c := range all {
			e, found := want[c.key]
			if !found {
				e = exact{quantity: new(big.Rat), amount: new(big.Rat)}
			}
			e.records++
			e.quantity.Add(e.quantity, c.quantity.Rat())
			e.amount.Add(e.amount, c.amount.Rat())
			want[c.key] = e
		}
		n := 0
		var last totals.Key
		for key, sum := range sumOf(all).All() {
			w := want[key]
			if sum.Records != w.records || sum.Quantity.Rat().Cmp(w.quantity) != 0 || sum.Amount.Rat().Cmp(w.amount) != 0 {
				rt.Errorf("%v: got %+v, want %+v", key, sum, w)
			}
			if before := last.Account + "\x00" + last.Tariff + "\x00" + last.Currency; n > 0 && before >= key.Account+"\x00"+key.Tariff+"\x00"+key.Currency {
				rt.Errorf("got %v after %v, want order", key, last)
			}
			last = key
			n++
		}
		if n != len(want) {
			rt.Errorf("keys: got %d, want %d", n, len(want))
		}
	})
}

// TestManySmallAmountsAddUp: M-07. Floating-point numbers fail this.
func TestManySmallAmountsAddUp(t *testing.T) {
	sums, key := new(totals.Totals), totals.Key{Account: "a", Tariff: "t", Currency: "EUR"}
	for range 100_000 {
		sums.Add(key, decimal.New(1, -9), decimal.New(1, -2))
	}
	sums.Add(key, decimal.Decimal{}, decimal.New(1, 24))
	const want = `[{"account":"a","tariff":"t","currency":"EUR","records":100001,"quantity":"0.0001","amount":"1000000000000000000001000"}]`
	if got := text(t, sums); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAmountsThatEndInZerosAreWrittenAlike(t *testing.T) {
	key := totals.Key{Account: "a", Tariff: "t", Currency: "EUR"}
	one, other := new(totals.Totals), new(totals.Totals)
	one.Add(key, decimal.New(100, -2), decimal.New(1, 1))
	other.Add(key, decimal.New(1, 0), decimal.New(10000, -3))
	if text(t, one) != text(t, other) {
		t.Errorf("got %s and %s, want the same", text(t, one), text(t, other))
	}
}

func TestNoTotalsAreAnEmptyList(t *testing.T) {
	var sums totals.Totals
	sums.Merge(new(totals.Totals))
	for range sums.All() {
		t.Error("got a sum, want none")
	}
	if got := text(t, &sums); got != "[]" {
		t.Errorf("got %s, want []", got)
	}
}

// TestTotalsInsideAStructAreWritten: a method of the pointer alone would leave {} in their place, without an error.
func TestTotalsInsideAStructAreWritten(t *testing.T) {
	type part struct{ Totals totals.Totals }
	p := part{}
	p.Totals.Add(totals.Key{Account: "a", Tariff: "t", Currency: "EUR"}, decimal.New(1, 0), decimal.New(2, 0))
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var again part
	if err := json.Unmarshal(b, &again); err != nil || text(t, &again.Totals) != text(t, &p.Totals) || text(t, &again.Totals) == "[]" {
		t.Errorf("%s: got %s, %v; want %s", b, text(t, &again.Totals), err, text(t, &p.Totals))
	}
}

func TestAllStopsWhenNoMoreIsAskedFor(t *testing.T) {
	n := 0
	for range sumOf(chargedRecords(t, 1, 100)).All() {
		if n++; n == 3 {
			break
		}
	}
	if n != 3 {
		t.Errorf("got %d sums, want 3", n)
	}
}

func TestTotalsThatWereNotWrittenHereAreRefused(t *testing.T) {
	const fine = `{"account":"a","tariff":"t","currency":"EUR","records":1,"quantity":"1","amount":"1"}`
	for _, c := range []struct{ text, want string }{
		{"[" + fine + "," + fine + "]", "there twice"},
		{"[" + strings.Replace(fine, `"records":1`, `"records":0`, 1) + "]", "of 0 records"},
		{"[" + strings.Replace(fine, `"amount":"1"`, `"amount":"1e9999"`, 1) + "]", "exponent"},
		{"[" + strings.Replace(fine, `"amount":"1"`, `"amount":"1e-19"`, 1) + "]", "exponent"},
		{"[" + strings.Replace(fine, `"quantity":"1"`, `"quantity":"1E999999999"`, 1) + "]", "exponent"},
		{"[" + strings.Replace(fine, `"amount":"1"`, `"amount":"x"`, 1) + "]", "decimal"},
		{"{}", "cannot unmarshal"},
		{"[", "unexpected end"},
	} {
		sums := sumOf(chargedRecords(t, 1, 3))
		before := text(t, sums)
		if err := json.Unmarshal([]byte(c.text), sums); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.text, err, c.want)
		}
		if after := text(t, sums); after != before {
			t.Errorf("%s: got %s, want the totals as before", c.text, after)
		}
	}
}

// FuzzUnmarshal: totals that are read are written and read again, to the same bytes, and double when they are merged with themselves.
func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(text(f, sumOf(chargedRecords(f, 1, 3)))))
	f.Add([]byte(`[{"account":"a","records":1,"quantity":"1e9999","amount":1.50}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		sums, again := new(totals.Totals), new(totals.Totals)
		if json.Unmarshal(data, sums) != nil {
			return
		}
		one := text(t, sums)
		if err := json.Unmarshal([]byte(one), again); err != nil || text(t, again) != one {
			t.Errorf("got %s, then %s, %v", one, text(t, again), err)
		}
		again.Merge(sums)
		var doubled []totals.Sum
		for _, sum := range again.All() {
			doubled = append(doubled, sum)
		}
		i := 0
		for key, sum := range sums.All() {
			if d := doubled[i]; !d.Amount.Equal(sum.Amount.Add(sum.Amount)) || d.Records != 2*sum.Records {
				t.Errorf("%v: got %v, want twice %v", key, d, sum)
			}
			i++
		}
	})
}

// The order of a map must not be seen.
func TestTheSameTotalsAreWrittenTheSameEveryTime(t *testing.T) {
	sums := sumOf(chargedRecords(t, 1, 2000))
	want := text(t, sums)
	for range 20 {
		if text(t, sums) != want {
			t.Fatal("got other bytes, want the same")
		}
	}
	all := chargedRecords(t, 1, 2000)
	slices.Reverse(all)
	if text(t, sumOf(all)) != want {
		t.Error("in reverse: got other bytes, want the same")
	}
}
