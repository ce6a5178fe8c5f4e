package web

import (
	"fmt"
	"strings"
)

// Price is what requests cost. It is the user's: none is built in that claims to be today's.
type Price struct {
	// Dollars is the price of 10,000 requests. Defaults to 0, unknown.
	Dollars float64
}

const priceUnit = 10_000

// of returns the cost of requests, such as "$0.0012", or "" if the price is unknown.
func (p Price) of(requests int64) string {
	if p.Dollars <= 0 {
		return ""
	}
	cost := float64(requests) / priceUnit * p.Dollars
	decimals := 2
	for small := 0.1; cost > 0 && cost < small && decimals < 8; small /= 10 {
		decimals++
	}
	return fmt.Sprintf("$%.*f", decimals, cost)
}

// String returns the price for people.
func (p Price) String() string {
	if p.Dollars <= 0 {
		return "no price was given"
	}
	return "$" + strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.6f", p.Dollars), "0"), ".") + " for 10,000 requests"
}
