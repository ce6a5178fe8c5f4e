package records

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxText bounds ids, accounts, tariffs and units, in characters.
const maxText = 64

// splitFields appends the fields of a line of CSV to fields. Unlike RFC 4180, a field ends with its line: an open quote spoils one
// line, not the rest of the file. If the line is malformed, reason says why.
func splitFields(fields []string, line string) (all []string, reason string) {
	for {
		if strings.HasPrefix(line, `"`) {
			field, rest, reason := quoted(line)
			if reason != "" {
				return nil, reason
			}
			fields = append(fields, field)
			if rest == "" {
				return fields, ""
			}
			line = rest[1:]
			continue
		}
		field, rest, more := strings.Cut(line, ",")
		if strings.IndexByte(field, '"') >= 0 {
			return nil, fmt.Sprintf("field %d has a quote but does not begin with one", len(fields)+1)
		}
		if fields = append(fields, field); !more {
			return fields, ""
		}
		line = rest
	}
}

// quoted returns the field that the line begins with, and the rest of the line, which is empty or begins with a comma.
func quoted(line string) (field, rest, reason string) {
	rest = line[1:]
	for {
		text, after, closed := strings.Cut(rest, `"`)
		if !closed {
			return "", "", "a quote is not closed before the end of the line"
		}
		field += text
		switch {
		case after == "" || after[0] == ',':
			return field, after, ""
		case after[0] == '"': // two quotes are one
			field, rest = field+`"`, after[1:]
		default:
			return "", "", "there is text after a closing quote"
		}
	}
}

// appendField appends a field of CSV, quoted only if it has to be.
func appendField(dst []byte, field string) []byte {
	if strings.IndexByte(field, ',') < 0 && strings.IndexByte(field, '"') < 0 {
		return append(dst, field...)
	}
	dst = append(dst, '"')
	dst = append(dst, strings.ReplaceAll(field, `"`, `""`)...)
	return append(dst, '"')
}

// checkText says why a text is not one to bill by, or nothing.
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
