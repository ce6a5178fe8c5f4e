package records

import (
	"fmt"
	"strings"

	"github.com/shopspring/decimal"
)

// Bounds of quantities and prices. They keep every product and sum small, and leave no room for exponents.
const (
	maxWholeDigits = 13 // of 10^12
	maxDecimals    = 9
)

// largest is the largest quantity and price.
var largest = decimal.New(1, 12)

// parseNumber reads digits with or without decimals. If text is anything else, reason says why.
func parseNumber(column, text string) (number decimal.Decimal, reason string) {
	bad := func(format string, args ...any) (decimal.Decimal, string) {
		return decimal.Decimal{}, column + " " + excerpt(text) + " " + fmt.Sprintf(format, args...)
	}
	if text == "" {
		return decimal.Decimal{}, column + " is empty"
	}
	whole, decimals, point := strings.Cut(text, ".")
	if !digits(whole) || point && !digits(decimals) {
		switch positive, negative := strings.CutPrefix(text, "-"); {
		case negative && plain(positive):
			return bad("is negative")
		case strings.ContainsAny(text, "eE") && digits(text[:1]):
			return bad("is not written out: exponents are not read")
		}
		return bad("is not a number such as 12.5")
	}
	whole = strings.TrimLeft(whole, "0")
	if len(decimals) > maxDecimals {
		return bad("has %d decimals, at most %d are allowed", len(decimals), maxDecimals)
	}
	if len(whole) > maxWholeDigits {
		return bad("is more than %s", largest)
	}
	if len(whole)+len(decimals) <= 18 { // fits into an int64
		number = decimal.New(integer(whole, decimals), -int32(len(decimals)))
	} else {
		var err error
		if number, err = decimal.NewFromString(whole + "." + decimals); err != nil {
			return bad("is not a number: %v", err)
		}
	}
	if len(whole) == maxWholeDigits && number.GreaterThan(largest) {
		return bad("is more than %s", largest)
	}
	return number, ""
}

// integer returns the number that the digits of both strings are, at most 18 together.
func integer(whole, decimals string) int64 {
	var n int64
	for i := range len(whole) {
		n = 10*n + int64(whole[i]-'0')
	}
	for i := range len(decimals) {
		n = 10*n + int64(decimals[i]-'0')
	}
	return n
}

// plain reports whether text is digits, with decimals or without.
func plain(text string) bool {
	whole, decimals, point := strings.Cut(text, ".")
	return digits(whole) && (!point || digits(decimals))
}

// digits reports whether text is one decimal digit or more, and nothing else.
func digits(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return text != ""
}

// inBounds reports whether a number is one that parseNumber returns. It costs the same for all numbers, as large as they may be.
func inBounds(d decimal.Decimal) bool {
	if d.Sign() < 0 || d.Exponent() < -maxDecimals || d.Exponent() >= maxWholeDigits {
		return false
	}
	return d.NumDigits()+int(d.Exponent()) < maxWholeDigits || d.LessThanOrEqual(largest)
}
