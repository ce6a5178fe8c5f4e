package records

import (
	"errors"
	"io"
	"iter"
	"strings"
	"time"
)

// usageColumns are those of a usage file, in the order in which it is written.
var usageColumns = []string{"id", "time", "account", "tariff", "quantity"}

// Years of records that are read. What is outside is a mistake, and a day must have a name of ten characters.
const firstYear, lastYear = 1970, 9999

// Read returns the records of a usage file: CSV with a header that names the columns id, time, account, tariff and quantity, in any
// order. Other columns are passed over. The name of the file is used in messages only.
//
// A line that is no record comes as a *[Rejection], and the next line follows. Any other error is the last that comes: the file has no
// header, or reading it failed, and what came before is not all of it. Memory is constant.
func Read(r io.Reader, file string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		t, err := openTable(r, file, usageColumns)
		if err != nil {
			yield(Record{}, err)
			return
		}
		for {
			values, reason, err := t.next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(Record{}, t.failed(err))
				return
			}
			var record Record
			if reason == "" {
				record, reason = parseRecord(values)
			}
			record.Line = t.lines.number
			if reason == "" {
				if !yield(record, nil) {
					return
				}
			} else if !yield(Record{}, &Rejection{File: file, Line: t.lines.number, ID: record.ID, Reason: reason}) {
				return
			}
		}
	}
}

// parseRecord makes a record of the values of usageColumns. If they are none, reason says why, and the record has its id if that is good.
func parseRecord(values []string) (record Record, reason string) {
	id, when, account, tariff, quantity := values[0], values[1], values[2], values[3], values[4]
	if reason = checkText("id", id); reason != "" {
		return Record{}, reason
	}
	record.ID = id
	if record.Time, reason = parseTime(when); reason != "" {
		return record, reason
	}
	if reason = checkText("account", account); reason != "" {
		return record, reason
	}
	record.Account = account
	if reason = checkText("tariff", tariff); reason != "" {
		return record, reason
	}
	record.Tariff = tariff
	record.Quantity, reason = parseNumber("quantity", quantity)
	return record, reason
}

// strictTime reports whether a text that time.Parse takes for RFC 3339 is just that. It also takes an hour of one digit, a decimal comma
// and zones of 24 hours or 60 minutes.
func strictTime(text string) bool {
	if text[13] != ':' || text[19] == ',' {
		return false
	}
	zone, found := strings.CutSuffix(text, "Z")
	return found || zone[len(zone)-5:len(zone)-3] <= "23" && zone[len(zone)-2:] <= "59"
}

// parseTime reads an instant with its zone.
func parseTime(text string) (t time.Time, reason string) {
	if text == "" {
		return time.Time{}, "time is empty"
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || !strictTime(text) {
		return time.Time{}, "time " + excerpt(text) + " is not like 2026-11-21T08:30:00Z or 2026-11-21T09:30:00+01:00"
	}
	t = t.UTC()
	if year := t.Year(); year < firstYear || year > lastYear {
		return time.Time{}, "time " + excerpt(text) + " is not between 1970 and 9999"
	}
	return t, ""
}
