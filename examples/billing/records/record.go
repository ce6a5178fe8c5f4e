package records

import (
	"fmt"
	"time"

	"github.com/shopspring/decimal"
)

// Record is one use of a service by an account. It is a line of a usage file.
type Record struct {
	Line     int             `json:"line"` // of its file; the header is line 1
	ID       string          `json:"id"`   // unique within a day
	Time     time.Time       `json:"time"` // in UTC
	Account  string          `json:"account"`
	Tariff   string          `json:"tariff"`
	Quantity decimal.Decimal `json:"quantity"` // from 0 to 10^12, with at most 9 decimals
}

// Day returns the date of the record in UTC, such as 2026-11-21.
func (r *Record) Day() string { return r.Time.UTC().Format(time.DateOnly) }

// Rejection is a line of a file that is not billed, and why. As an error it says file, line and reason.
//
//nolint:errname // Most of its users put it into a report; to them it is no error.
type Rejection struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	ID     string `json:"id,omitempty"` // of the record, if it could be read
	Reason string `json:"reason"`
}

// Error returns the rejection as file:line: reason.
func (r *Rejection) Error() string { return fmt.Sprintf("%s:%d: %s", r.File, r.Line, r.Reason) }
