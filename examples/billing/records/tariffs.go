package records

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/shopspring/decimal"
)

// tariffColumns are those of a tariffs file, in the order in which it is written.
var tariffColumns = []string{"tariff", "unit", "currency", "price"}

// Tariff is the price of a unit of a service.
type Tariff struct {
	ID       string
	Unit     string          // such as kWh
	Currency string          // of ISO 4217
	Price    decimal.Decimal // of a unit, from 0 to 10^12, with at most 9 decimals
}

// Tariffs are the tariffs of a provider. They do not change once read, and are safe for concurrent use.
type Tariffs struct {
	byID map[string]pricing
}

// pricing is what charging needs of a tariff.
type pricing struct {
	tariff Tariff
	digits int32 // of the minor unit of the currency
}

// ReadTariffs reads CSV with a header that names the columns tariff, unit, currency and price, in any order. Other columns are passed
// over. The name of the file is used in messages only.
//
// A line that is no tariff is rejected, and so is the second line of a tariff; the rest counts. An error says that the file has no header
// or no tariff, or that reading it failed.
func ReadTariffs(r io.Reader, file string) (*Tariffs, []Rejection, error) {
	t, err := openTable(r, file, tariffColumns)
	if err != nil {
		return nil, nil, err
	}
	tariffs := &Tariffs{byID: make(map[string]pricing)}
	lineOf := make(map[string]int)
	var rejected []Rejection
	for {
		values, reason, err := t.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, rejected, t.failed(err)
		}
		var p pricing
		if reason == "" {
			p, reason = parseTariff(values)
		}
		id := p.tariff.ID
		if first, found := lineOf[id]; found && reason == "" {
			reason = fmt.Sprintf("the tariff %s is on line %d already", id, first)
		}
		if reason != "" {
			rejected = append(rejected, Rejection{File: file, Line: t.lines.number, ID: id, Reason: reason})
			continue
		}
		tariffs.byID[id], lineOf[id] = p, t.lines.number
	}
	if len(tariffs.byID) == 0 {
		return nil, rejected, fmt.Errorf("%s has no tariff that can be used", file)
	}
	return tariffs, rejected, nil
}

// parseTariff makes a tariff of the values of tariffColumns. If they are none, reason says why, and the tariff has its id if that is good.
func parseTariff(values []string) (p pricing, reason string) {
	id, unit, currency, price := values[0], values[1], values[2], values[3]
	if reason = checkText("tariff", id); reason != "" {
		return pricing{}, reason
	}
	p.tariff.ID = id
	if reason = checkText("unit", unit); reason != "" {
		return p, reason
	}
	p.tariff.Unit = unit
	minor, known := MinorDigits(currency)
	if !known {
		return p, "currency " + excerpt(currency) + " is not a code of ISO 4217 such as EUR"
	}
	p.tariff.Currency, p.digits = currency, minor
	p.tariff.Price, reason = parseNumber("price", price)
	return p, reason
}

// Charge returns what the record costs: its quantity times the price of its tariff, rounded to the minor unit of the tariff's currency, and
// to the even neighbor if it is in the middle. The error says, without the record's file and line, why the record cannot be charged.
func (t *Tariffs) Charge(r *Record) (currency string, amount decimal.Decimal, err error) {
	p, found := t.byID[r.Tariff]
	if !found {
		return "", decimal.Decimal{}, fmt.Errorf("there is no tariff %s", excerpt(r.Tariff))
	}
	if !inBounds(r.Quantity) {
		return "", decimal.Decimal{}, fmt.Errorf("the quantity is not between 0 and %s with at most %d decimals", largest, maxDecimals)
	}
	return p.tariff.Currency, r.Quantity.Mul(p.tariff.Price).RoundBank(p.digits), nil
}

// All returns the tariffs in the order of their ids.
func (t *Tariffs) All() iter.Seq[Tariff] {
	return func(yield func(Tariff) bool) {
		for _, id := range slices.Sorted(maps.Keys(t.byID)) {
			if !yield(t.byID[id].tariff) {
				return
			}
		}
	}
}

// WriteCSV writes the tariffs as [ReadTariffs] reads them, in the order of their ids: equal tariffs give the same bytes.
func (t *Tariffs) WriteCSV(w io.Writer) error {
	buffered := bufio.NewWriter(w)
	line := []byte(strings.Join(tariffColumns, ",") + "\n")
	for tariff := range t.All() {
		for _, field := range []string{tariff.ID, tariff.Unit, tariff.Currency} {
			line = append(appendField(line, field), ',')
		}
		line = append(line, tariff.Price.String()...)
		line = append(line, '\n')
		if _, err := buffered.Write(line); err != nil {
			return err
		}
		line = line[:0]
	}
	return buffered.Flush()
}
