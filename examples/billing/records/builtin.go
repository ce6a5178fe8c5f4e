package records

import (
	"bytes"
	_ "embed"
	"sync"
)

//go:embed tariffs.csv
var builtInTariffs []byte

// BuiltInTariffs returns the tariffs that the records of [Generate] use. Many of their prices have one decimal more than their currency, so
// that amounts are often in the middle of two. Currencies have 0, 2 and 3 decimals.
var BuiltInTariffs = sync.OnceValue(func() *Tariffs {
	tariffs, rejected, err := ReadTariffs(bytes.NewReader(builtInTariffs), "tariffs.csv")
	if err != nil || len(rejected) > 0 {
		panic("the built-in tariffs cannot be read") // A test reads them.
	}
	return tariffs
})
