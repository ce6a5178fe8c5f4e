// Package records has usage records, the tariffs that price them, and their files.
//
// Everything is CSV: UTF-8, commas, and fields in quotes as in RFC 4180. There is one exception: a field ends with
// its line, so that a forgotten quote spoils one line and not the rest of the file.
package records

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/shopspring/decimal"
)

// Record is one use of a service by an account. It is a line of a usage file.
type Record struct {
	Line     int             `json:"line"` // of its file; the header is line 1
	ID       string          `json:"id"`   // unique among all records that are ever billed
	Time     time.Time       `json:"time"` // in UTC
	Account  string          `json:"account"`
	Tariff   string          `json:"tariff"`
	Quantity decimal.Decimal `json:"quantity"` // from 0 to 10^12, with at most 9 decimals
}

// Rejection is a line of a file that is not billed, and the reason. As an error it says file, line and reason.
//
//nolint:errname // Most callers store it; to them it is not an error.
type Rejection struct {
	File   string `json:"-"`
	Line   int    `json:"line"`
	ID     string `json:"id,omitempty"` // of the record, if it could be read
	Reason string `json:"reason"`

	// Text is the line: the five columns of a usage file in their usual order, if the line had
	// them, and otherwise the line as it was. It is printable, and cut after 4 KiB.
	Text string `json:"text,omitempty"`
}

// Error returns the rejection as file:line: reason.
func (r *Rejection) Error() string { return fmt.Sprintf("%s:%d: %s", r.File, r.Line, r.Reason) }

// Reject returns the rejection of a record that was read.
func (r *Record) Reject(reason string) Rejection {
	return Rejection{Line: r.Line, ID: r.ID, Reason: reason, Text: strings.TrimSuffix(string(appendRecord(nil, r)), "\n")}
}

// Columns are the columns of a usage file, in their usual order.
var Columns = []string{"id", "time", "account", "tariff", "quantity"}

// Read returns the records of a usage file: CSV with a header that names [Columns], in any order. Other columns are
// ignored. The name of the file is for messages.
//
// A line that is not a record comes as a *[Rejection], and the next line follows. Any other error ends the sequence:
// the file has no header, or reading it failed. Memory is constant.
func Read(r io.Reader, file string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		t, err := openTable(r, file, Columns)
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
			text := t.text
			if reason == "" {
				if record, reason = parseRecord(values); reason != "" {
					text = string(appendFields(nil, values...))
				}
			}
			record.Line = t.lines.number
			if reason == "" {
				if !yield(record, nil) {
					return
				}
			} else if !yield(Record{}, &Rejection{File: file, Line: record.Line, ID: record.ID, Reason: reason, Text: printable(text)}) {
				return
			}
		}
	}
}

// maxRejected is how many bytes of a rejected line are kept.
const maxRejected = 4 << 10

// printable replaces everything in a line that a piece, a database or a terminal would not take.
func printable(line string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return utf8.RuneError
	}, strings.ToValidUTF8(line[:min(len(line), maxRejected)], "\uFFFD"))
}

// parseRecord makes a record of the values of [Columns]. If they are not a record, it has its id, if that is valid,
// and reason says why.
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

// parseTime reads an instant with its zone. It is stricter than [time.Parse], which takes an hour of one digit, a
// decimal comma, and zones of 24 hours or 60 minutes for RFC 3339.
func parseTime(text string) (t time.Time, reason string) {
	if text == "" {
		return time.Time{}, "time is empty"
	}
	t, err := time.Parse(time.RFC3339, text)
	strict := err == nil && text[13] == ':' && text[19] != ','
	if zone, utc := strings.CutSuffix(text, "Z"); strict && !utc {
		strict = zone[len(zone)-5:len(zone)-3] <= "23" && zone[len(zone)-2:] <= "59"
	}
	if !strict {
		return time.Time{}, "time " + excerpt(text) + " is not like 2026-11-21T08:30:00Z or 2026-11-21T09:30:00+01:00"
	}
	if t = t.UTC(); t.Year() < 1970 || t.Year() > 9999 {
		return time.Time{}, "time " + excerpt(text) + " is not between 1970 and 9999"
	}
	return t, ""
}

// Bounds of quantities and prices. They keep every product and sum small, and leave no room for exponents.
const (
	maxWholeDigits = 13 // of 10^12
	maxDecimals    = 9
)

var largest = decimal.New(1, 12)

// parseNumber reads digits with or without decimals.
func parseNumber(column, text string) (number decimal.Decimal, reason string) {
	bad := func(format string, args ...any) (decimal.Decimal, string) {
		return decimal.Decimal{}, column + " " + excerpt(text) + " " + fmt.Sprintf(format, args...)
	}
	whole, decimals, point := strings.Cut(text, ".")
	switch {
	case text == "":
		return decimal.Decimal{}, column + " is empty"
	case text[0] == '-' && len(whole) > 1 && digits(whole[1:]) && (!point || digits(decimals)):
		return bad("is negative")
	case strings.ContainsAny(text, "eE") && digits(text[:1]):
		return bad("is not written out: exponents are not read")
	case !digits(whole) || point && !digits(decimals):
		return bad("is not a number such as 12.5")
	}
	whole = strings.TrimLeft(whole, "0")
	if len(decimals) > maxDecimals {
		return bad("has %d decimals, at most %d are allowed", len(decimals), maxDecimals)
	}
	if len(whole) > maxWholeDigits {
		return bad("is more than %s", largest)
	}
	number, err := decimal.NewFromString("0" + whole + "." + decimals + "0")
	if err != nil {
		return bad("is not a number: %v", err)
	}
	if number.GreaterThan(largest) {
		return bad("is more than %s", largest)
	}
	return number, ""
}

// digits reports whether text is one decimal digit or more, and nothing else.
func digits(text string) bool {
	return text != "" && strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' }) < 0
}

// maxText bounds ids, accounts, tariffs and units, in characters.
const maxText = 64

// checkText returns the reason if a text is invalid, and otherwise nothing.
func checkText(column, text string) (reason string) {
	switch {
	case text == "":
		return column + " is empty"
	case len(text) > maxText && utf8.RuneCountInString(text) > maxText:
		return fmt.Sprintf("%s %s has %d characters, at most %d are allowed", column, excerpt(text), utf8.RuneCountInString(text), maxText)
	case text[0] == ' ' || text[len(text)-1] == ' ':
		return fmt.Sprintf("%s %s begins or ends with a space", column, excerpt(text))
	}
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return fmt.Sprintf("%s %s has a character that cannot be printed", column, excerpt(text))
		}
	}
	return ""
}

// excerpt quotes the beginning of a text for a message.
func excerpt(text string) string {
	const most = 40 // characters
	n := 0
	for i := range text {
		if n++; n > most {
			return strconv.Quote(text[:i] + "…")
		}
	}
	return strconv.Quote(text)
}

// appendRecord appends the line of a usage file. Equal records give the same bytes.
func appendRecord(dst []byte, r *Record) []byte {
	dst = appendFields(dst, r.ID)
	dst = append(dst, ',')
	dst = r.Time.UTC().AppendFormat(dst, time.RFC3339Nano)
	dst = append(dst, ',')
	return append(appendFields(dst, r.Account, r.Tariff, r.Quantity.String()), '\n')
}

// AppendPiece appends a record to a piece of a batch: its line in the usage file, then [Columns].
func AppendPiece(dst []byte, r *Record) []byte {
	return appendRecord(append(strconv.AppendInt(dst, int64(r.Line), 10), ','), r)
}

// AppendRejection appends a rejected line to a piece of a batch, so that it reaches the books too.
func AppendRejection(dst []byte, r *Rejection) []byte {
	dst = append(strconv.AppendInt(dst, int64(r.Line), 10), ',')
	return append(appendFields(dst, r.ID, printable(r.Reason), r.Text), '\n')
}

// The fields of a line of a piece.
const (
	recordFields    = 6 // of AppendPiece
	rejectionFields = 4 // of AppendRejection
)

// ReadPiece returns the records of a piece, and as *[Rejection] the rejected lines. Any other error ends the sequence:
// programs write pieces, so a line that is neither means that the piece is damaged. The name is for messages.
func ReadPiece(r io.Reader, name string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		l := newLines(r)
		var fields []string
		for {
			line, reason, err := l.next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(Record{}, fmt.Errorf("reading piece %s after line %d: %w", name, l.number, err))
				return
			}
			if reason == "" {
				fields, reason = splitFields(fields[:0], string(line))
			}
			record, rejection := Record{}, (error)(nil)
			number := 0
			if reason == "" {
				if number, err = strconv.Atoi(fields[0]); err != nil || number < 1 {
					reason = "line " + excerpt(fields[0]) + " is not the number of a line"
				}
			}
			switch {
			case reason != "":
			case len(fields) == rejectionFields:
				rejection = &Rejection{Line: number, ID: fields[1], Reason: fields[2], Text: fields[3]}
			case len(fields) == recordFields:
				record, reason = parseRecord(fields[1:])
				record.Line = number
			default:
				reason = fmt.Sprintf("the line has %d fields, not %d or %d", len(fields), recordFields, rejectionFields)
			}
			if reason != "" {
				yield(Record{}, fmt.Errorf("piece %s:%d: %s", name, l.number, reason))
				return
			}
			if !yield(record, rejection) {
				return
			}
		}
	}
}

// SplitText returns the values of [Columns] in the text of a rejection, or false if the line did not have them.
func (r *Rejection) SplitText() (values []string, ok bool) {
	values, reason := splitFields(nil, r.Text)
	return values, reason == "" && len(values) == len(Columns)
}
