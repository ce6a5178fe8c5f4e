package table

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// Limits of the service, by "Understanding the Table service data model".
const (
	maxKeyBytes    = 1 << 10 // in UTF-16
	maxProperties  = 252
	maxNameLength  = 255
	maxValueBytes  = 64 << 10 // strings in UTF-16
	maxEntityBytes = 1 << 20
)

// Check returns what is wrong with a key, [ErrInvalid] or [ErrTooLarge]. A key is text without control
// characters and without /, \, # and ?; its parts have up to 1 KiB in UTF-16, and its partition is not empty.
func (k Key) Check() error {
	if k.Partition == "" {
		return invalid("", "the partition is empty")
	}
	for _, part := range [...]struct{ name, text string }{{"partition", k.Partition}, {"row", k.Row}} {
		if !utf8.ValidString(part.text) {
			return invalid("", "the %s %.100q is not UTF-8", part.name, part.text)
		}
		if i := strings.IndexFunc(part.text, badInKey); i >= 0 {
			r, _ := utf8.DecodeRuneInString(part.text[i:])
			return invalid(`leave out control characters and / \ # ?, or escape them`, "the %s %.100q has %q in it", part.name, part.text, r)
		}
		if n := utf16Bytes(part.text); n > maxKeyBytes {
			return tooLarge("", "the %s has %d bytes in UTF-16, and may have %d", part.name, n, maxKeyBytes)
		}
	}
	return nil
}

func badInKey(r rune) bool {
	return r <= 0x1f || r >= 0x7f && r <= 0x9f || strings.ContainsRune(`/\#?`, r)
}

var (
	propertyName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	guidText     = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
)

// Check returns what is wrong with an entity: [ErrInvalid] or [ErrTooLarge]. An entity has up to 252
// properties. Their names are those of variables in ASCII, up to 255 characters, and not PartitionKey, RowKey or
// Timestamp. A string has up to 64 KiB in UTF-16, bytes up to 64 KiB. Numbers are finite, times from 1601 to
// 9999. The whole entity has up to 1 MiB, as [Entity.Size] counts.
func (e Entity) Check() error {
	if err := e.Key.Check(); err != nil {
		return err
	}
	if len(e.Properties) > maxProperties {
		return tooLarge("", "the entity has %d properties, and may have %d", len(e.Properties), maxProperties)
	}
	for name, value := range e.Properties {
		if err := checkProperty(name, value); err != nil {
			return err
		}
	}
	if n := e.Size(); n > maxEntityBytes {
		return tooLarge("store the content in a blob", "the entity has %d bytes, and may have %d", n, maxEntityBytes)
	}
	return nil
}

func checkProperty(name string, value any) error {
	if err := checkName(name); err != nil {
		return err
	}
	n, err := checkValue(value)
	if err != nil {
		return invalid("", "the property %s %v", name, err)
	}
	if n > maxValueBytes {
		return tooLarge("store the content in a blob", "the property %s has %d bytes, and may have %d", name, n, maxValueBytes)
	}
	return nil
}

func checkName(name string) error {
	switch {
	case !propertyName.MatchString(name) || len(name) > maxNameLength:
		return invalid("use letters, digits and underscores, up to 255, and no digit first", "%.100q is no name of a property", name)
	case name == "PartitionKey" || name == "RowKey" || name == "Timestamp":
		return invalid("", "%s is no property: use Key and Modified", name)
	}
	return nil
}

// The years that the service's Edm.DateTime can hold.
const minYear, maxYear = 1601, 9999

// checkValue returns the size of a value in bytes, by the service's formula, or what is wrong with it.
func checkValue(value any) (size int, err error) {
	switch v := value.(type) {
	case string:
		if !utf8.ValidString(v) {
			return 0, fmt.Errorf("is not UTF-8")
		}
		return utf16Bytes(v), nil
	case []byte:
		return len(v), nil
	case bool:
		return 1, nil
	case int32:
		return 4, nil
	case int64:
		return 8, nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return 0, fmt.Errorf("is %v", v)
		}
		return 8, nil
	case time.Time:
		if y := v.UTC().Year(); y < minYear || y > maxYear {
			return 0, fmt.Errorf("is a time in the year %d: use %d to %d", y, minYear, maxYear)
		}
		return 8, nil
	case GUID:
		if !guidText.MatchString(string(v)) {
			return 0, fmt.Errorf("is no GUID: %.50q", string(v))
		}
		return 16, nil
	}
	return 0, fmt.Errorf("is a %T: use string, bool, int32, int64, float64, time.Time, []byte or table.GUID", value)
}

// Size returns how much an entity counts towards the limits, in bytes. The formula is that of the storage team's article
// "Understanding Windows Azure Storage Billing – Bandwidth, Transactions, and Capacity": 4, the keys in UTF-16, and for
// each property 8, its name in UTF-16, and its value; a string or bytes count 4 more. What is no value of a property,
// such as an int, counts nothing.
func (e Entity) Size() int {
	size := 4 + utf16Bytes(e.Partition) + utf16Bytes(e.Row)
	for name, value := range e.Properties {
		n, err := checkValue(value)
		if err != nil {
			continue
		}
		switch value.(type) {
		case string, []byte:
			n += 4
		}
		size += 8 + 2*len(name) + n
	}
	return size
}

func utf16Bytes(s string) int {
	n := 0
	for _, r := range s {
		n += 2 * utf16.RuneLen(r) // of the replacement character for bytes that are not UTF-8
	}
	return n
}

func checkETag(k Key, etag ETag) error {
	if etag == "" {
		return &Error{Key: k, Kind: ErrInvalid, Detail: "there is no ETag", Hint: "read the entity first, or use Any"}
	}
	if strings.ContainsFunc(string(etag), func(r rune) bool { return r < ' ' || r > '~' }) {
		return &Error{Key: k, Kind: ErrInvalid, Detail: "the ETag has characters that no version has", Hint: "use the ETag of an entity that was read"}
	}
	return nil
}

// maxTop is the largest page of the service.
const maxTop = 1000

// Check returns what is wrong with a query: [ErrInvalid] or [ErrTooLarge]. The partition and each bound of its rows
// count as a comparison, of which it has up to 15 with those of the filter. Check does not look into the token.
func (q Query) Check() error {
	switch {
	case q.Top < 0 || q.Top > maxTop:
		return invalid("", "Top is %d: a page has 1 to %d entities", q.Top, maxTop)
	case q.Partition == "" && (q.FromRow != "" || q.ToRow != ""):
		return invalid("", "a range of rows needs a partition")
	case q.ToRow != "" && q.FromRow >= q.ToRow:
		return invalid("", "the rows from %.100q to %.100q are none", q.FromRow, q.ToRow)
	}
	if q.Partition != "" {
		for _, row := range []string{q.FromRow, q.ToRow} {
			if err := (Key{q.Partition, row}).Check(); err != nil {
				return err
			}
		}
	}
	n, err := q.Filter.check()
	if err != nil {
		return err
	}
	for _, bound := range []string{q.Partition, q.FromRow, q.ToRow} {
		if bound != "" {
			n++
		}
	}
	if n > maxComparisons {
		return invalid("", "the query has %d comparisons, its bounds included, and may have %d", n, maxComparisons)
	}
	return nil
}
