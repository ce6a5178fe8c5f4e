package records

import (
	"strings"

	"github.com/shopspring/decimal"
)

// minorDigits are the decimals of the currencies of ISO 4217 that are in use. Those without a minor unit, such as gold, are left out.
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

// MinorDigits returns the decimals of the smallest amount of a currency: 2 for EUR, 0 for JPY, 3 for KWD. It is false for what is not a
// code of ISO 4217.
func MinorDigits(currency string) (digits int32, ok bool) {
	digits, ok = minorDigits[currency]
	return digits, ok
}

// FormatAmount returns an amount with all decimals of its currency, such as 12.50 for EUR, and no unit. More decimals than those are kept.
func FormatAmount(currency string, amount decimal.Decimal) string {
	return amount.StringFixed(max(minorDigits[currency], -amount.Normalize().Exponent()))
}
