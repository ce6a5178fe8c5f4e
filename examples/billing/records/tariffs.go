package records

import (
	"bufio"
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/shopspring/decimal"
)

// Tariff is the price of a unit of a service.
type Tariff struct {
	ID       string
	Unit     string          // such as kWh
	Currency string          // of ISO 4217
	Price    decimal.Decimal // of a unit, from 0 to 10^12, with at most 9 decimals
}

// Tariffs are the tariffs of a provider by their ids. They do not change once read.
type Tariffs map[string]Tariff

//go:embed tariffs.csv
var builtInTariffs []byte

// BuiltInTariffs returns the tariffs that the records of [Generate] use. Many of their prices have one decimal more
// than their currency, so that amounts are often in the middle of two. Currencies have 0, 2 and 3 decimals.
var BuiltInTariffs = sync.OnceValue(func() Tariffs {
	tariffs, rejected, err := ReadTariffs(bytes.NewReader(builtInTariffs), "tariffs.csv")
	if err != nil || len(rejected) > 0 {
		panic("the built-in tariffs cannot be read") // A test reads them.
	}
	return tariffs
})

var tariffColumns = []string{"tariff", "unit", "currency", "price"}

// ReadTariffs reads CSV with a header that names the columns tariff, unit, currency and price, in any order. Other
// columns are ignored. The name of the file is for messages.
//
// A line that is not a tariff is rejected, and so is the second line of a tariff; the others count. After an error
// there are no tariffs: the file has no header or no tariff, or reading it failed.
func ReadTariffs(r io.Reader, file string) (Tariffs, []Rejection, error) {
	t, err := openTable(r, file, tariffColumns)
	if err != nil {
		return nil, nil, err
	}
	tariffs, lineOf := make(Tariffs), make(map[string]int)
	var rejected []Rejection
	for {
		values, reason, err := t.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, rejected, t.failed(err)
		}
		var one Tariff
		if reason == "" {
			one, reason = parseTariff(values)
		}
		if first, found := lineOf[one.ID]; found && reason == "" {
			reason = fmt.Sprintf("the tariff %s is on line %d already", one.ID, first)
		}
		if reason != "" {
			rejected = append(rejected, Rejection{File: file, Line: t.lines.number, ID: one.ID, Reason: reason})
			continue
		}
		tariffs[one.ID], lineOf[one.ID] = one, t.lines.number
	}
	if len(tariffs) == 0 {
		return nil, rejected, fmt.Errorf("%s has no tariff that can be used", file)
	}
	return tariffs, rejected, nil
}

// parseTariff makes a tariff of the values of tariffColumns. If they are not a tariff, it has its id, if that is
// valid, and reason says why.
func parseTariff(values []string) (t Tariff, reason string) {
	id, unit, currency, price := values[0], values[1], values[2], values[3]
	if reason = checkText("tariff", id); reason != "" {
		return Tariff{}, reason
	}
	t.ID = id
	if reason = checkText("unit", unit); reason != "" {
		return t, reason
	}
	if _, known := MinorDigits(currency); !known {
		return t, "currency " + excerpt(currency) + " is not a code of ISO 4217 such as EUR"
	}
	t.Unit, t.Currency = unit, currency
	t.Price, reason = parseNumber("price", price)
	return t, reason
}

// Charge returns the amount of a record: its quantity times the price of its tariff, rounded to the minor unit of the
// currency, and to the even neighbor if it is in the middle. The error is the reason for a rejection.
func (t Tariffs) Charge(r *Record) (currency string, amount decimal.Decimal, err error) {
	tariff, found := t[r.Tariff]
	if !found {
		return "", decimal.Decimal{}, fmt.Errorf("there is no tariff %s", excerpt(r.Tariff))
	}
	return tariff.Currency, r.Quantity.Mul(tariff.Price).RoundBank(minorDigits[tariff.Currency]), nil
}

// WriteCSV writes the tariffs as [ReadTariffs] reads them, in the order of their ids: equal tariffs give the same bytes.
func (t Tariffs) WriteCSV(w io.Writer) error {
	buffered := bufio.NewWriter(w)
	_, err := buffered.Write(append(appendFields(nil, tariffColumns...), '\n'))
	for _, id := range slices.Sorted(maps.Keys(t)) {
		if err == nil {
			_, err = buffered.Write(append(appendFields(nil, id, t[id].Unit, t[id].Currency, t[id].Price.String()), '\n'))
		}
	}
	return errors.Join(err, buffered.Flush())
}

// minorDigits are the decimals of the currencies of ISO 4217 that are in use. Currencies without a minor unit, such as
// gold, are left out.
var minorDigits = func() map[string]int32 {
	byDigits := map[int32]string{
		0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
		2: "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF CHW CNY COP " +
			"COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD " +
			"KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK " +
			"NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT " +
			"TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XCD XCG YER ZAR ZMW ZWG",
		3: "BHD IQD JOD KWD LYD OMR TND",
		4: "CLF UYW",
	}
	all := make(map[string]int32)
	for digits, codes := range byDigits {
		for code := range strings.FieldsSeq(codes) {
			all[code] = digits
		}
	}
	return all
}()

// MinorDigits returns the decimals of the smallest amount of a currency: 2 for EUR, 0 for JPY, 3 for KWD. It is false
// for anything that is not a code of ISO 4217.
func MinorDigits(currency string) (digits int32, ok bool) {
	digits, ok = minorDigits[currency]
	return digits, ok
}

// FormatAmount returns an amount with all decimals of its currency, such as 12.50 for EUR, and no unit. More decimals
// than these are kept.
func FormatAmount(currency string, amount decimal.Decimal) string {
	return amount.StringFixed(max(minorDigits[currency], -amount.Normalize().Exponent()))
}
