package table

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Filter is a condition on properties. Make it with [Equal], [Less], [And] and their siblings; the zero value
// matches every entity. It never changes, and so is safe for concurrent use.
//
// A comparison does not match an entity without the property, also if it is [NotEqual]: so does the service, by
// Azurite's issue 1929. The value must have the type of the property, because the service promises nothing else, by
// "Querying tables and entities"; the stores of this package's own do not match another type, and int32 and int64 are
// two types. Strings are compared by their bytes.
type Filter struct {
	comparison string   // "" for all and any
	property   string   // of a comparison
	value      any      // of a comparison
	connective string   // "and" or "or"; "" for a comparison
	parts      []Filter // of a connective
}

// Equal matches entities whose property has the value.
func Equal(property string, value any) Filter { return compare("eq", property, value) }

// NotEqual matches entities whose property has another value of the same type.
func NotEqual(property string, value any) Filter { return compare("ne", property, value) }

// Less matches entities whose property is less than the value.
func Less(property string, value any) Filter { return compare("lt", property, value) }

// LessOrEqual matches entities whose property is less than the value or equal to it.
func LessOrEqual(property string, value any) Filter { return compare("le", property, value) }

// Greater matches entities whose property is greater than the value.
func Greater(property string, value any) Filter { return compare("gt", property, value) }

// GreaterOrEqual matches entities whose property is greater than the value or equal to it.
func GreaterOrEqual(property string, value any) Filter { return compare("ge", property, value) }

// And matches entities that match all filters.
func And(filters ...Filter) Filter { return Filter{connective: "and", parts: slices.Clone(filters)} }

// Or matches entities that match one of the filters at least.
func Or(filters ...Filter) Filter { return Filter{connective: "or", parts: slices.Clone(filters)} }

func compare(comparison, property string, value any) Filter {
	return Filter{comparison: comparison, property: property, value: kept(value)}
}

// maxComparisons is the limit of the service, by "Querying tables and entities".
const maxComparisons = 15

// Check returns what is wrong with a filter: [ErrInvalid] or [ErrTooLarge]. A filter has up to 15 comparisons.
// A comparison of bools, GUIDs or bytes is of their equality. A cloud store sends the filter in the address of a
// request and may refuse a longer one than that has room for.
func (f Filter) Check() error {
	n, err := f.check()
	if err == nil && n > maxComparisons {
		err = invalid("", "the filter has %d comparisons, and may have %d", n, maxComparisons)
	}
	return err
}

func (f Filter) check() (comparisons int, err error) {
	if f.connective != "" {
		if len(f.parts) == 0 {
			return 0, invalid("", "the filter has an empty %s", f.connective)
		}
		for _, part := range f.parts {
			n, err := part.check()
			if err != nil {
				return 0, err
			}
			comparisons += n
		}
		return comparisons, nil
	}
	if f.comparison == "" {
		return 0, nil
	}
	if err := checkProperty(f.property, f.value); err != nil {
		return 0, err
	}
	switch f.value.(type) {
	case bool, GUID, []byte:
		if f.comparison != "eq" && f.comparison != "ne" {
			return 0, invalid("use Equal or NotEqual", "the filter orders %s by a %T", f.property, f.value)
		}
	}
	return 1, nil
}

// Match reports whether an entity matches the filter. Its properties must be as [Entity.Clone] makes them.
func (f Filter) Match(e Entity) bool {
	switch f.connective {
	case "and":
		return !slices.ContainsFunc(f.parts, func(part Filter) bool { return !part.Match(e) })
	case "or":
		return slices.ContainsFunc(f.parts, func(part Filter) bool { return part.Match(e) })
	}
	if f.comparison == "" {
		return true
	}
	order, oneType := compareValues(e.Properties[f.property], f.value)
	if !oneType {
		return false
	}
	switch f.comparison {
	case "eq":
		return order == 0
	case "ne":
		return order != 0
	case "lt":
		return order < 0
	case "le":
		return order <= 0
	case "gt":
		return order > 0
	default:
		return order >= 0
	}
}

// compareValues compares two values, if they are of one type.
func compareValues(a, b any) (order int, oneType bool) {
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		return strings.Compare(a, b), ok
	case GUID:
		b, ok := b.(GUID)
		return strings.Compare(string(a), string(b)), ok
	case []byte:
		b, ok := b.([]byte)
		return bytes.Compare(a, b), ok
	case int32:
		b, ok := b.(int32)
		return cmp.Compare(a, b), ok
	case int64:
		b, ok := b.(int64)
		return cmp.Compare(a, b), ok
	case float64:
		b, ok := b.(float64)
		return cmp.Compare(a, b), ok
	case time.Time:
		b, ok := b.(time.Time)
		return a.Compare(b), ok
	case bool:
		b, ok := b.(bool)
		if a == b {
			return 0, ok
		}
		return 1, ok
	}
	return 0, false
}

// String returns the filter in the service's form, an OData expression: "Owner eq 'ann'". That of the zero value
// is "". The source is "Querying tables and entities".
func (f Filter) String() string {
	if f.connective != "" {
		var parts []string
		for _, part := range f.parts {
			text := part.String()
			switch {
			case text == "" && f.connective == "or":
				return "" // a part that matches everything
			case text == "":
			default:
				parts = append(parts, "("+text+")")
			}
		}
		return strings.Join(parts, " "+f.connective+" ")
	}
	if f.comparison == "" {
		return ""
	}
	return f.property + " " + f.comparison + " " + literal(f.value)
}

// literal returns a value as OData writes it. Quotes in a string are doubled, so that no text ends it.
func literal(value any) string {
	switch v := value.(type) {
	case string:
		return "'" + strings.ReplaceAll(v, "'", "''") + "'"
	case []byte:
		return "X'" + hex.EncodeToString(v) + "'"
	case time.Time:
		return "datetime'" + v.Format("2006-01-02T15:04:05.0000000Z") + "'"
	case GUID:
		return "guid'" + string(v) + "'"
	case int64:
		return strconv.FormatInt(v, 10) + "L"
	case float64:
		text := strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(text, ".e") {
			text += ".0" // or it were an integer
		}
		return text
	}
	return fmt.Sprint(value) // a bool or an int32
}
