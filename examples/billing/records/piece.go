package records

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
)

// pieceFields are the number of the line in the usage file, and then the columns of the usage file.
const pieceFields = 6

// AppendPiece appends the record to a piece of a batch: its line in the usage file, then id, time, account, tariff and quantity, as CSV
// without a header. The line ends with LF. Records that are equal give the same bytes. Line, ID, Time, Account, Tariff and Quantity must be
// such as [Read] returns.
func AppendPiece(dst []byte, r *Record) []byte {
	dst = strconv.AppendInt(dst, int64(r.Line), 10)
	dst = append(dst, ',')
	return appendRecord(dst, r)
}

// ReadPiece returns the records of a piece that [AppendPiece] made. The name is used in messages only. An error is the last that comes:
// pieces are written by programs and have checksums, so there is nothing to reject.
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
			var record Record
			if reason == "" {
				if fields, reason = splitFields(fields[:0], string(line)); reason == "" {
					record, reason = parsePieceFields(fields)
				}
			}
			if reason != "" {
				yield(Record{}, fmt.Errorf("piece %s:%d: %s", name, l.number, reason))
				return
			}
			if !yield(record, nil) {
				return
			}
		}
	}
}

// parsePieceFields makes a record of the fields of a line of a piece. If they are none, reason says why.
func parsePieceFields(fields []string) (record Record, reason string) {
	if len(fields) != pieceFields {
		return Record{}, fmt.Sprintf("the line has %d fields, not %d", len(fields), pieceFields)
	}
	if record, reason = parseRecord(fields[1:]); reason != "" {
		return Record{}, reason
	}
	line, err := strconv.Atoi(fields[0])
	if err != nil || line < 1 {
		return Record{}, "line " + excerpt(fields[0]) + " is not the number of a line"
	}
	record.Line = line
	return record, ""
}
