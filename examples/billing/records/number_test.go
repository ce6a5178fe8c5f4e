package records

import (
	"math/big"
	"strings"
	"testing"

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
	})
}
