package books

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/billing/totals"
)

// Batch is what the books know of a batch as a whole.
type Batch struct {
	Name string // unique, such as 2026-11-21
	File string // where the records are from

	// Records is how many lines the batch has: those that are billed and those that are rejected.
	// Record refuses a batch whose sums and rejections do not add up to it.
	Records int64

	// Rejected is how many of the records are rejected. Record counts the rejections instead.
	Rejected int64

	// Items is into how many work items the batch was split.
	Items int64

	// HandedOver is when the batch was handed over for processing. Needed.
	HandedOver time.Time

	// Reported is when the batch came into the books. Defaults to the time just before the transaction
	// is committed. The books keep microseconds.
	Reported time.Time
}

// Billed returns how many of the records are billed.
func (b *Batch) Billed() int64 { return b.Records - b.Rejected }

// Latency returns how long the batch took from being handed over to being in the books. It is
// negative if the clocks of two machines differed by more than that.
func (b *Batch) Latency() time.Duration { return b.Reported.Sub(b.HandedOver) }

// Total is a sum over batches.
type Total struct {
	totals.Key
	totals.Sum
}

// Rejection is a line that was rejected, and the batch it was in.
type Rejection struct {
	Batch string
	Line  records.Rejection
}

// ErrInvalid is the error of a batch that can never be recorded as it is. Another try is of no use.
var ErrInvalid = errors.New("the batch is invalid")

// check returns why a batch cannot be recorded.
func check(b *Batch, sums *totals.Totals, rejections []records.Rejection) error {
	switch {
	case b.Name == "":
		return fmt.Errorf("%w: it has no name", ErrInvalid)
	case !storable(b.Name) || !storable(b.File):
		return fmt.Errorf("%w: its name %q or file %q has characters that are not text", ErrInvalid, b.Name, b.File)
	case b.Items < 0:
		return fmt.Errorf("%w: it has %d items", ErrInvalid, b.Items)
	case b.HandedOver.IsZero():
		return fmt.Errorf("%w: it does not say when it was handed over", ErrInvalid)
	}
	var billed int64
	for key, sum := range sums.All() {
		if !storable(key.Account) || !storable(key.Tariff) || !storable(key.Currency) {
			return fmt.Errorf("%w: account %q, tariff %q or currency %q has characters that are not text", ErrInvalid, key.Account, key.Tariff, key.Currency)
		}
		if sum.Records < 0 || sum.Records > math.MaxInt64-billed {
			return fmt.Errorf("%w: account %q has %d records of tariff %q", ErrInvalid, key.Account, sum.Records, key.Tariff)
		}
		billed += sum.Records
	}
	if got := billed + int64(len(rejections)); got != b.Records {
		return fmt.Errorf("%w: it has %d records, but %d billed and %d rejected, which makes %d", ErrInvalid, b.Records, billed, len(rejections), got)
	}
	return nil
}

// storable reports whether both databases can store a text: PostgreSQL takes neither NUL nor
// anything but UTF-8.
func storable(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") }

// madeStorable replaces what a database cannot store. It is for texts that people read and
// nothing compares.
func madeStorable(text string) string {
	const replacement = string(utf8.RuneError)
	return strings.ReplaceAll(strings.ToValidUTF8(text, replacement), "\x00", replacement)
}
