package records

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"
)

const tariffHeader = "tariff,unit,currency,price\n"

func tariffsOf(t testing.TB, lines string) Tariffs {
	t.Helper()
	tariffs, rejected, err := ReadTariffs(strings.NewReader(tariffHeader+lines), "tariffs.csv")
	if err != nil || len(rejected) > 0 {
		t.Fatalf("tariffs: got %v, %v", rejected, err)
	}
	return tariffs
}

// TestAmountsAreRoundedToTheEvenNeighbor: M-07.
func TestAmountsAreRoundedToTheEvenNeighbor(t *testing.T) {
	for _, c := range []struct{ currency, price, quantity, want string }{
		{"EUR", "0.005", "1", "0"}, // a tie, down to 0.00
		{"EUR", "0.005", "3", "0.02"},
		{"EUR", "0.005", "5", "0.02"},
		{"EUR", "0.005", "7", "0.04"},
		{"EUR", "0.005", "1.000000001", "0.01"}, // above the tie
		{"EUR", "0.005", "0.999999999", "0"},
		{"EUR", "0.125", "1", "0.12"},
		{"EUR", "0.135", "1", "0.14"},
		{"JPY", "0.5", "1", "0"},
		{"JPY", "0.5", "3", "2"},
		{"JPY", "31.5", "1", "32"},
		{"JPY", "32.5", "1", "32"},
		{"KWD", "0.0125", "1", "0.012"},
		{"KWD", "0.0125", "3", "0.038"},
		{"KWD", "0.0005", "1", "0"},
		{"CLF", "0.00015", "1", "0.0002"},
		{"EUR", "1000000000000", "1000000000000", "1000000000000000000000000"},
	} {
		tariffs := tariffsOf(t, "t,kWh,"+c.currency+","+c.price+"\n")
		currency, amount, err := tariffs.Charge(&Record{Tariff: "t", Quantity: decimal.RequireFromString(c.quantity)})
		if err != nil || currency != c.currency || amount.String() != c.want {
			t.Errorf("%s × %s: got %s %s, %v; want %s %s", c.quantity, c.price, amount, currency, err, c.want, c.currency)
		}
	}
}

// text writes n, in units of 10^-9, as a decimal.
func text(n *big.Int) string {
	digits := fmt.Sprintf("%010s", n.String())
	return digits[:len(digits)-9] + "." + digits[len(digits)-9:]
}

// TestAmountsAreThoseOfIntegerArithmetic: M-07. The amount is computed again with integers alone.
func TestAmountsAreThoseOfIntegerArithmetic(t *testing.T) {
	currencies := map[string]int64{"JPY": 0, "EUR": 2, "KWD": 3, "CLF": 4}
	number := rapid.OneOf(rapid.Int64Range(0, 1e18), rapid.Custom(func(rt *rapid.T) int64 { // often in the middle of two amounts
		return rapid.Int64Range(0, 2_000).Draw(rt, "halves") * 500_000
	}))
	rapid.Check(t, func(rt *rapid.T) {
		currency := rapid.SampledFrom([]string{"JPY", "EUR", "KWD", "CLF"}).Draw(rt, "currency")
		quantity, price := big.NewInt(number.Draw(rt, "quantity")), big.NewInt(number.Draw(rt, "price"))
		tariffs := tariffsOf(t, "t,kWh,"+currency+","+text(price)+"\n")
		all, _, err := readAll(strings.NewReader(header+"u,2026-11-21T08:30:00Z,a,t,"+text(quantity)), "u.csv")
		if err != nil || len(all) != 1 {
			rt.Fatalf("quantity %s: got %v, %v", text(quantity), all, err)
		}
		_, amount, err := tariffs.Charge(&all[0])
		if err != nil {
			rt.Fatal(err)
		}
		// The product is in units of 10^-18, the amount in units of 10^-digits.
		unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(18-currencies[currency]), nil)
		want, rest := new(big.Int).QuoRem(new(big.Int).Mul(quantity, price), unit, new(big.Int))
		if c := rest.Lsh(rest, 1).Cmp(unit); c > 0 || c == 0 && want.Bit(0) == 1 {
			want.Add(want, big.NewInt(1))
		}
		if got := amount.Shift(int32(currencies[currency])); !got.IsInteger() || got.BigInt().Cmp(want) != 0 {
			rt.Errorf("%s × %s %s: got %s, want %s minor units", text(quantity), text(price), currency, amount, want)
		}
	})
}

func TestWhatCannotBeChargedSaysWhy(t *testing.T) {
	tariffs := tariffsOf(t, "t,kWh,EUR,1\n")
	for _, c := range []struct {
		record Record
		want   string
	}{
		{Record{Tariff: "steam"}, `there is no tariff "steam"`},
		{Record{Tariff: "T"}, `there is no tariff "T"`},
	} {
		if _, _, err := tariffs.Charge(&c.record); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

func TestABadTariffIsRejectedAndTheRestCounts(t *testing.T) {
	file := "price,tariff,note,currency,unit\r\n" +
		"0.5,a,first,EUR,kWh\r\n" +
		"0.7,a,again,EUR,kWh\r\n" +
		"1,b,,EURO,kWh\r\n" +
		"1,b,,XAU,oz\r\n" +
		"1,b,,eur,kWh\r\n" +
		"-1,b,,EUR,kWh\r\n" +
		"1e999999999,b,,EUR,kWh\r\n" +
		"2000000000000,b,,EUR,kWh\r\n" +
		"1,,,EUR,kWh\r\n" +
		"1,b,,EUR,\r\n" +
		"\"1,b,,EUR,kWh\r\n" +
		"1,b\r\n" +
		"2,b,\"fine, \"\"now\"\"\",JPY,m³"
	tariffs, rejected, err := ReadTariffs(strings.NewReader(file), "t.csv")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range rejected {
		got = append(got, r.ID+" "+r.Error())
	}
	want := []string{
		"a t.csv:3: the tariff a is on line 2 already",
		`b t.csv:4: currency "EURO" is not a code of ISO 4217 such as EUR`,
		`b t.csv:5: currency "XAU" is not a code of ISO 4217 such as EUR`,
		`b t.csv:6: currency "eur" is not a code of ISO 4217 such as EUR`,
		`b t.csv:7: price "-1" is negative`,
		`b t.csv:8: price "1e999999999" is not written out: exponents are not read`,
		`b t.csv:9: price "2000000000000" is more than 1000000000000`,
		" t.csv:10: tariff is empty",
		"b t.csv:11: unit is empty",
		" t.csv:12: a quote is not closed before the end of the line",
		" t.csv:13: the line has 2 fields, the header 5",
	}
	if !slices.Equal(got, want) {
		t.Errorf("rejected: got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	var out bytes.Buffer
	if err := tariffs.WriteCSV(&out); err != nil || out.String() != tariffHeader+"a,kWh,EUR,0.5\nb,m³,JPY,2\n" {
		t.Errorf("tariffs: got %q, %v", out.String(), err)
	}
}

func TestTariffsThatCannotBeReadAreAnError(t *testing.T) {
	broken := errors.New("the disk is broken")
	for _, c := range []struct {
		file io.Reader
		want string
	}{
		{strings.NewReader(""), "t.csv is empty: its first line must name the columns tariff,unit,currency,price"},
		{strings.NewReader("tariff,price\n"), "t.csv:1: the header lacks the columns unit, currency; nothing of the file was read"},
		{strings.NewReader(tariffHeader), "t.csv has no tariff that can be used"},
		{strings.NewReader(tariffHeader + "a,kWh,EUR,x\n"), "t.csv has no tariff that can be used"},
		{io.MultiReader(strings.NewReader(tariffHeader+"a,kWh,EUR,1\n"), iotest.ErrReader(broken)), "reading t.csv after line 2: the disk is broken"},
	} {
		if tariffs, _, err := ReadTariffs(c.file, "t.csv"); tariffs != nil || err == nil || err.Error() != c.want {
			t.Errorf("got %v, %v; want %s", tariffs, err, c.want)
		}
	}
}

// TestEqualTariffsGiveTheSameBytes: tariffs are kept under the hash of what is written.
func TestEqualTariffsGiveTheSameBytes(t *testing.T) {
	var one, other bytes.Buffer
	if err := tariffsOf(t, "b,kWh,EUR,1.50\n\"a,\"\"x\"\"\",kWh,EUR,02\n").WriteCSV(&one); err != nil {
		t.Fatal(err)
	}
	if err := tariffsOf(t, "\"a,\"\"x\"\"\",\"kWh\",EUR,2.0\nb,kWh,EUR,1.5\n").WriteCSV(&other); err != nil {
		t.Fatal(err)
	}
	if one.String() != other.String() {
		t.Errorf("got %q and %q, want the same", one.String(), other.String())
	}
	again, rejected, err := ReadTariffs(&one, "t.csv")
	if err != nil || len(rejected) > 0 || !maps.EqualFunc(again, tariffsOf(t, "b,kWh,EUR,1.5\n\"a,\"\"x\"\"\",kWh,EUR,2\n"), equalTariffs) {
		t.Errorf("read again: got %v, %v, %v", again, rejected, err)
	}
	broken := errors.New("the disk is full")
	if err := BuiltInTariffs().WriteCSV(failingWriter{broken}); !errors.Is(err, broken) {
		t.Errorf("full disk: got %v, want the error", err)
	}
}

func equalTariffs(a, b Tariff) bool {
	equal := a.Price.Equal(b.Price)
	a.Price, b.Price = decimal.Decimal{}, decimal.Decimal{}
	return equal && a == b
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// TestTheBuiltInTariffsReachTheCornersOfRounding: currencies have 0, 2 and 3 decimals.
func TestTheBuiltInTariffsReachTheCornersOfRounding(t *testing.T) {
	digits := make(map[int32]bool)
	n := 0
	for _, tariff := range BuiltInTariffs() {
		minor, ok := MinorDigits(tariff.Currency)
		if n++; !ok {
			t.Errorf("%s: got the unknown currency %s", tariff.ID, tariff.Currency)
		}
		digits[minor] = true
	}
	if n < 20 || !digits[0] || !digits[2] || !digits[3] {
		t.Errorf("got %d tariffs with minor digits %v; want at least 20, with 0, 2 and 3", n, digits)
	}
}

func TestAmountsAreWrittenWithTheDecimalsOfTheirCurrency(t *testing.T) {
	for _, c := range []struct{ currency, amount, want string }{
		{"EUR", "12.5", "12.50"},
		{"EUR", "0", "0.00"},
		{"EUR", "-3", "-3.00"},
		{"EUR", "12.500000", "12.50"},
		{"EUR", "1.005", "1.005"}, // never rounded
		{"JPY", "12", "12"},
		{"KWD", "0.01", "0.010"},
		{"CLF", "1", "1.0000"},
		{"XYZ", "1.5", "1.5"},
		{"EUR", "1000000000000000000000000", "1000000000000000000000000.00"},
	} {
		if got := FormatAmount(c.currency, decimal.RequireFromString(c.amount)); got != c.want {
			t.Errorf("%s %s: got %s, want %s", c.amount, c.currency, got, c.want)
		}
	}
}

func TestCurrenciesHaveTheMinorUnitsOfISO4217(t *testing.T) {
	for currency, want := range map[string]int32{"EUR": 2, "USD": 2, "CHF": 2, "JPY": 0, "KRW": 0, "ISK": 0, "UGX": 0, "KWD": 3, "TND": 3, "CLF": 4, "UYW": 4, "MRU": 2, "HUF": 2} {
		if got, ok := MinorDigits(currency); !ok || got != want {
			t.Errorf("%s: got %d, %v; want %d", currency, got, ok, want)
		}
	}
	for _, none := range []string{"", "eur", "EURO", "XXX", "XAU", "DEM", "EU"} {
		if _, ok := MinorDigits(none); ok {
			t.Errorf("%q: got a currency, want none", none)
		}
	}
	for code := range minorDigits {
		if len(code) != 3 || strings.ToUpper(code) != code {
			t.Errorf("%q is not a code", code)
		}
	}
	if len(minorDigits) < 150 {
		t.Errorf("currencies: got %d, want at least 150", len(minorDigits))
	}
}
