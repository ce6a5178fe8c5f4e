package meter

import "slices"

// DefaultUnit is for how many requests a [Price] is quoted unless it says otherwise.
const DefaultUnit = 10_000

// Price is what requests cost, in any currency. Prices differ by region and redundancy and change, so
// none is built in: the zero Price means that the price is unknown.
type Price struct {
	// Class1 is the price of Unit requests of class 1. Zero means that the price is unknown.
	Class1 float64 `json:"class1"`

	// Class2 is the price of Unit requests of class 2. Defaults to Class1.
	Class2 float64 `json:"class2,omitempty"`

	// Unit is for how many requests the prices are quoted. Defaults to 10,000.
	Unit int64 `json:"unit,omitempty"`

	// Class2Operations are the operations of class 2; all others are of class 1. The price sheet says
	// which they are. Defaults to Peek and Properties, which change nothing.
	Class2Operations []Operation `json:"class2Operations,omitempty"`
}

// Of returns the price of one request of the operation, 0 if it is unknown.
func (p Price) Of(o Operation) float64 {
	if p.Class1 <= 0 {
		return 0
	}
	unit, second, price := p.Unit, p.Class2Operations, p.Class1
	if unit <= 0 {
		unit = DefaultUnit
	}
	if second == nil {
		second = []Operation{Peek, Properties}
	}
	if p.Class2 > 0 && slices.Contains(second, o) {
		price = p.Class2
	}
	return price / float64(unit)
}

// Cost returns what the requests cost at this price, and false if the price is unknown. It charges
// what [Tally.Billed] counts.
func (c Counts) Cost(p Price) (cost float64, known bool) {
	for _, line := range c {
		cost += float64(line.Billed()) * p.Of(line.Operation)
	}
	return cost, p.Class1 > 0
}
