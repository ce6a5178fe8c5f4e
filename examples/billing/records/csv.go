package records

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxLine bounds a line in bytes, its end included.
const maxLine = 64 << 10

// lines reads the lines of a text in constant memory.
type lines struct {
	r      *bufio.Reader
	number int // of the line that was read last
}

func newLines(r io.Reader) *lines { return &lines{r: bufio.NewReaderSize(r, maxLine)} }

// next returns the next line that is not empty, without its end. It is valid until the next call. If the line is not
// text, reason says why. The error is io.EOF after the last line.
func (l *lines) next() (line []byte, reason string, err error) {
	for {
		line, err := l.r.ReadSlice('\n')
		size := len(line)
		for errors.Is(err, bufio.ErrBufferFull) { // of a line that is too long only the size counts
			var more []byte
			more, err = l.r.ReadSlice('\n')
			size += len(more)
		}
		if err != nil && (size == 0 || !errors.Is(err, io.EOF)) {
			return nil, "", err
		}
		l.number++
		if size > maxLine {
			return nil, fmt.Sprintf("the line has %d bytes, at most %d are read", size, maxLine), nil
		}
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		if l.number == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if len(line) > 0 {
			return line, unusable(line), nil
		}
	}
}

// unusable returns the reason for which a line cannot be read as text, or nothing.
func unusable(line []byte) string {
	for i := 0; i < len(line); {
		r, size := utf8.DecodeRune(line[i:])
		if r < ' ' || r == 0x7f {
			return fmt.Sprintf("byte %d is a control character, 0x%02x", i+1, r)
		}
		if r == utf8.RuneError && size == 1 {
			return fmt.Sprintf("byte %d, 0x%02x, is not UTF-8", i+1, line[i])
		}
		i += size
	}
	return ""
}

// splitFields appends the fields of a line of CSV to fields. If the line is malformed, reason says why.
func splitFields(fields []string, line string) (all []string, reason string) {
	for {
		if !strings.HasPrefix(line, `"`) {
			field, rest, more := strings.Cut(line, ",")
			if strings.Contains(field, `"`) {
				return nil, fmt.Sprintf("field %d has a quote but does not begin with one", len(fields)+1)
			}
			if fields = append(fields, field); !more {
				return fields, ""
			}
			line = rest
			continue
		}
		field, rest := "", line[1:]
		for {
			text, after, closed := strings.Cut(rest, `"`)
			if !closed {
				return nil, "a quote is not closed before the end of the line"
			}
			field += text
			if rest = after; !strings.HasPrefix(after, `"`) {
				break
			}
			field, rest = field+`"`, after[1:] // two quotes are one
		}
		fields = append(fields, field)
		if rest == "" {
			return fields, ""
		}
		if rest[0] != ',' {
			return nil, "there is text after a closing quote"
		}
		line = rest[1:]
	}
}

// appendFields appends fields of CSV, quoted only if they have to be.
func appendFields(dst []byte, fields ...string) []byte {
	for i, field := range fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		if strings.ContainsAny(field, `,"`) {
			field = `"` + strings.ReplaceAll(field, `"`, `""`) + `"`
		}
		dst = append(dst, field...)
	}
	return dst
}

// Formula reports whether a spreadsheet could take a text for a formula. Reports write an apostrophe before such a
// text, and [Read] ignores it there.
func Formula(text string) bool { return text != "" && strings.IndexAny(text, "=+-@＝＋－＠") == 0 }

// table reads CSV with a header. Its columns may come in any order; other columns are ignored.
type table struct {
	lines  *lines
	file   string
	places []int    // of the columns in the line
	fields []string // of the line, reused
	values []string // by column, reused
	width  int      // the fields of the header
	text   string   // of the last line
}

// openTable reads the header. After an error nothing of the file can be read.
func openTable(r io.Reader, file string, columns []string) (*table, error) {
	t := &table{lines: newLines(r), file: file, values: make([]string, len(columns))}
	want := strings.Join(columns, ",")
	unreadable := func(reason string) error {
		return fmt.Errorf("%s:%d: %s; nothing of the file was read", file, t.lines.number, reason)
	}
	line, reason, err := t.lines.next()
	switch {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%s is empty: its first line must name the columns %s", file, want)
	case err != nil:
		return nil, t.failed(err)
	case bytes.IndexByte(line, ',') < 0 && bytes.ContainsAny(line, ";\t"):
		return nil, unreadable("the fields must be separated by commas")
	case reason != "":
		return nil, unreadable(reason)
	}
	names, reason := splitFields(nil, string(line))
	if reason != "" {
		return nil, unreadable(reason)
	}
	var missing []string
	for _, column := range columns {
		place := slices.Index(names, column)
		t.places = append(t.places, place)
		if place < 0 {
			missing = append(missing, column)
		} else if slices.Contains(names[place+1:], column) {
			return nil, unreadable("the header names the column " + column + " twice")
		}
	}
	if len(missing) == len(columns) {
		return nil, unreadable("there is no header: the first line must name the columns " + want)
	}
	if len(missing) > 0 {
		return nil, unreadable("the header lacks the columns " + strings.Join(missing, ", "))
	}
	t.width = len(names)
	return t, nil
}

// failed is the error of a file that could not be read to its end.
func (t *table) failed(err error) error {
	return fmt.Errorf("reading %s after line %d: %w", t.file, t.lines.number, err)
}

// next returns the values of the next line, by column. They are valid until the next call; the strings stay valid. If
// the line is malformed, reason says why. The error is io.EOF after the last line.
func (t *table) next() (values []string, reason string, err error) {
	line, reason, err := t.lines.next()
	t.text = string(line)
	if err != nil || reason != "" {
		return nil, reason, err
	}
	fields, reason := splitFields(t.fields[:0], t.text)
	if reason != "" {
		return nil, reason, nil
	}
	t.fields = fields
	if len(fields) != t.width {
		return nil, fmt.Sprintf("the line has %d fields, the header %d", len(fields), t.width), nil
	}
	for i, place := range t.places {
		t.values[i] = fields[place]
		if after, quoted := strings.CutPrefix(fields[place], "'"); quoted && Formula(after) {
			t.values[i] = after
		}
	}
	return t.values, "", nil
}
