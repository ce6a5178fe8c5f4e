package totals

import (
	"encoding/json"
	"fmt"

	"github.com/shopspring/decimal"
)

// maxDecimals bounds the decimals of what is read from JSON: a sum has no more than what was added.
const maxDecimals = 18

// entry is a sum with its key, as it is in JSON.
type entry struct {
	Key
	Sum
}

// MarshalJSON returns a list of the sums in the order of their keys, with decimals as strings. Equal totals give the same bytes.
func (t Totals) MarshalJSON() ([]byte, error) {
	entries := make([]entry, 0, len(t.sums))
	for key, sum := range t.All() {
		entries = append(entries, entry{key, sum})
	}
	return json.Marshal(entries)
}

// UnmarshalJSON replaces the totals by those that MarshalJSON wrote.
func (t *Totals) UnmarshalJSON(text []byte) error {
	var entries []entry
	if err := json.Unmarshal(text, &entries); err != nil {
		return err
	}
	sums := make(map[Key]Sum, len(entries))
	for _, e := range entries {
		_, twice := sums[e.Key]
		switch {
		case twice:
			return fmt.Errorf("the totals of %v are there twice", e.Key)
		case e.Records < 1:
			return fmt.Errorf("the totals of %v are of %d records", e.Key, e.Records)
		case !writtenOut(e.Quantity) || !writtenOut(e.Amount):
			return fmt.Errorf("the totals of %v have an exponent or more than %d decimals", e.Key, maxDecimals)
		}
		sums[e.Key] = e.Sum
	}
	t.sums = sums
	return nil
}

// writtenOut reports whether a decimal has no exponent, which would cost memory when it is added.
func writtenOut(d decimal.Decimal) bool { return d.Exponent() <= 0 && d.Exponent() >= -maxDecimals }
