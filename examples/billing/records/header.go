package records

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// table reads CSV with a header. Its columns may come in any order; columns that nobody asks for are passed over.
type table struct {
	lines   *lines
	file    string
	columns []string // that are asked for
	places  []int    // of the columns in the line
	fields  []string // of the line, reused
	values  []string // by column, reused
	width   int      // the fields of the header
}

// openTable reads the header. An error says that nothing of the file can be read.
func openTable(r io.Reader, file string, columns []string) (*table, error) {
	t := &table{lines: newLines(r), file: file, columns: columns, values: make([]string, len(columns))}
	want := strings.Join(columns, ",")
	line, reason, err := t.lines.next()
	switch {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%s is empty: its first line must name the columns %s", file, want)
	case err != nil:
		return nil, t.failed(err)
	case bytes.HasPrefix(line, []byte{0xff, 0xfe}) || bytes.HasPrefix(line, []byte{0xfe, 0xff}):
		return nil, t.unreadable("the file is UTF-16: save it as UTF-8")
	case bytes.HasPrefix(line, []byte{0x1f, 0x8b}) || bytes.HasPrefix(line, []byte("PK\x03\x04")):
		return nil, t.unreadable("the file is compressed: unpack it first")
	case bytes.IndexByte(line, ',') < 0 && bytes.ContainsAny(line, ";\t"):
		return nil, t.unreadable("the fields must be separated by commas")
	case bytes.IndexByte(line, '\r') >= 0:
		return nil, t.unreadable("the lines must end with LF or CRLF, not with CR")
	case reason != "":
		return nil, t.unreadable(reason)
	}
	names, reason := splitFields(nil, string(line))
	if reason != "" {
		return nil, t.unreadable(reason)
	}
	var missing []string
	for _, column := range columns {
		place := slices.Index(names, column)
		t.places = append(t.places, place)
		if place < 0 {
			missing = append(missing, column)
		} else if slices.Contains(names[place+1:], column) {
			return nil, t.unreadable("the header names the column " + column + " twice")
		}
	}
	if len(missing) == len(columns) {
		return nil, t.unreadable("there is no header: the first line must name the columns " + want)
	}
	if len(missing) > 0 {
		return nil, t.unreadable("the header lacks the columns " + strings.Join(missing, ", "))
	}
	t.width = len(names)
	return t, nil
}

// unreadable is the error of a file of which nothing can be read.
func (t *table) unreadable(reason string) error {
	return fmt.Errorf("%s:%d: %s; nothing of the file was read", t.file, t.lines.number, reason)
}

// failed is the error of a file that could not be read to its end.
func (t *table) failed(err error) error {
	return fmt.Errorf("reading %s after line %d: %w", t.file, t.lines.number, err)
}

// next returns the values of the next line, in the order of the columns that are asked for. They are valid until the next call; the
// strings themselves stay. If the line is malformed, reason says why. The error is io.EOF after the last line.
func (t *table) next() (values []string, reason string, err error) {
	line, reason, err := t.lines.next()
	if err != nil || reason != "" {
		return nil, reason, err
	}
	fields, reason := splitFields(t.fields[:0], string(line))
	if reason != "" {
		return nil, reason, nil
	}
	t.fields = fields
	if len(fields) != t.width {
		return nil, fmt.Sprintf("the line has %d fields, the header %d", len(fields), t.width), nil
	}
	for i, place := range t.places {
		t.values[i] = fields[place]
	}
	return t.values, "", nil
}
