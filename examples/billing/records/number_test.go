package records

import (
	"math/big"
	"strings"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"
)

// TestNumbersAreReadExactly compares with big.Rat.
func TestNumbersAreReadExactly(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.StringMatching(`0{0,3}[0-9]{1,13}(\.[0-9]{1,10})?`).Draw(rt, "text")
		want, ok := new(big.Rat).SetString(text)
		if !ok {
			rt.Fatalf("big.Rat does not read %s", text)
		}
		_, decimals, _ := strings.Cut(text, ".")
		allowed := len(decimals) <= 9 && want.Cmp(new(big.Rat).SetInt64(1e12)) <= 0
		got, reason := parseNumber("quantity", text)
		if (reason == "") != allowed {
			rt.Fatalf("%s: got %q, want allowed %v", text, reason, allowed)
		}
		if allowed && got.Rat().Cmp(want) != 0 {
			rt.Errorf("%s: got %s", text, got)
		}
		if allowed && !inBounds(got) {
			rt.Errorf("%s: got out of bounds, want what is read to be in bounds", text)
		}
	})
}

func TestBoundsHoldForDecimalsThatWereNotRead(t *testing.T) {
	for _, c := range []struct {
		d    decimal.Decimal
		want bool
	}{
		{decimal.Decimal{}, true},
		{decimal.New(1, 12), true},
		{decimal.New(10, 11), true},
		{decimal.New(1_000_000_000_000, 0), true},
		{decimal.New(1_000_000_000_000_000_000, -6), true},
		{decimal.New(1, -9), true},
		{decimal.New(1, -10), false},
		{decimal.New(2, 12), false},
		{decimal.New(1, 13), false},
		{decimal.New(1_000_000_000_001, 0), false},
		{decimal.New(-1, 0), false},
		{decimal.New(1, 999_999_999), false},
		{decimal.New(0, 999_999_999), false},
		{decimal.New(1, -999_999_999), false},
		{decimal.RequireFromString("1000000000000.000000001"), false},
		{decimal.RequireFromString(strings.Repeat("9", 4000)), false},
	} {
		if got := inBounds(c.d); got != c.want {
			t.Errorf("%v×10^%d: got %v, want %v", c.d.Coefficient(), c.d.Exponent(), got, c.want)
		}
	}
}
