package tabletest

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/table"
)

var filterTests = []test{
	{"EveryOperatorComparesEveryType", func(e *env) {
		for name, of := range ordered {
			e.compare(name, e.comparable(of), len(operators))
		}
		for name, of := range equatable {
			e.compare(name, of, 2)
		}
	}},
	// No comparison matches an entity without the property, not even one for inequality.
	{"AFilterNeedsTheProperty", func(e *env) {
		e.insert(key("p", "with"), properties{"Name": "Ann", "Age": int32(30)})
		e.insert(key("p", "without"), properties{"Other": "Ann"})
		for _, value := range []any{"", "Ann", "Zoe"} {
			for _, op := range operators {
				for _, k := range e.selected(table.Query{Partition: "p", Filter: op.of("Name", value)}) {
					if k != "p/with" {
						e.Errorf("Name %s '%s' matches an entity that has no Name", op.name, value)
					}
				}
			}
		}
		e.selects(table.Query{Partition: "p", Filter: table.NotEqual("Name", "Zoe")}, "p/with")
		e.selects(table.Query{Partition: "p", Filter: table.NotEqual("Age", int32(1))}, "p/with")
		e.selects(table.Query{Partition: "p", Filter: table.NotEqual("name", "Zoe")}) // names have a case
		e.selects(table.Query{Partition: "p", Filter: table.NotEqual("Nothing", true)})
	}},
	{"AndAndOrCombine", func(e *env) {
		for i, row := range numbered(12) {
			e.insert(key("p", row), properties{"N": int32(i), "Even": i%2 == 0, "Third": i%3 == 0})
		}
		even, third, small := table.Equal("Even", true), table.Equal("Third", true), table.Less("N", int32(5))
		for _, c := range []struct {
			name string
			f    table.Filter
			want func(i int) bool
		}{
			{"and", table.And(even, third), func(i int) bool { return i%2 == 0 && i%3 == 0 }},
			{"or", table.Or(even, third), func(i int) bool { return i%2 == 0 || i%3 == 0 }},
			{"and in or", table.Or(table.And(even, small), third), func(i int) bool { return i%2 == 0 && i < 5 || i%3 == 0 }},
			{"or in and", table.And(table.Or(even, third), small), func(i int) bool { return (i%2 == 0 || i%3 == 0) && i < 5 }},
			{"one", table.And(even), func(i int) bool { return i%2 == 0 }},
			{"a zero part", table.And(even, table.Filter{}), func(i int) bool { return i%2 == 0 }},
			{"a zero choice", table.Or(even, table.Filter{}), func(int) bool { return true }},
			{"deep", table.And(table.Or(table.And(table.Or(even, small), third))), func(i int) bool { return (i%2 == 0 || i < 5) && i%3 == 0 }},
			{"the most beside a partition", table.Or(
				even, even, even, even, even, even, even, even, even, even, even, even, even, third,
			), func(i int) bool { return i%2 == 0 || i%3 == 0 }},
		} {
			var want []string
			for i, row := range numbered(12) {
				if c.want(i) {
					want = append(want, "p/"+row)
				}
			}
			if got := e.selected(table.Query{Partition: "p", Filter: c.f}); fmt.Sprint(got) != fmt.Sprint(want) {
				e.Errorf("%s: got %q, want %q", c.name, got, want)
			}
		}
	}},
	// A text in a filter is compared, whatever is in it.
	{"NoTextEscapesFromAFilter", func(e *env) {
		hostile := []string{
			"", "'", "''", "'''", "' or 'a' eq 'a", "x' or Name ne 'x", "')", "a&$top=1", "a#b", "a?b", "a+b", "a b", "%27", "%", "a/b", `a\b`, `"`,
			"ä€中🙂", "a\tb", "a\nb", "null", "true", "1", "datetime'2026-01-01T00:00:00Z'", "(", "$filter",
		}
		for i, text := range hostile {
			e.insert(key("p", fmt.Sprintf("%02d", i)), properties{"Name": text})
		}
		for i, text := range hostile {
			e.selects(table.Query{Partition: "p", Filter: table.Equal("Name", text)}, fmt.Sprintf("p/%02d", i))
			if got := e.selected(table.Query{Partition: "p", Filter: table.NotEqual("Name", text)}); len(got) != len(hostile)-1 {
				e.Errorf("ne %q selects %q", text, got)
			}
		}
	}},
	{"AFilterNarrowsARange", func(e *env) {
		for _, partition := range []string{"p", "q"} {
			for i, row := range numbered(9) {
				e.insert(key(partition, row), properties{"Even": i%2 == 0})
			}
		}
		even := table.Equal("Even", true)
		e.selects(table.Query{Partition: "p", FromRow: "0002", ToRow: "0007", Filter: even}, "p/0002", "p/0004", "p/0006")
		e.selects(table.Query{Partition: "p", FromRow: "0002", ToRow: "0007", Filter: even, Top: 1}, "p/0002", "p/0004", "p/0006")
		e.selects(table.Query{Filter: even, Top: 2}, "p/0000", "p/0002", "p/0004", "p/0006", "p/0008", "q/0000", "q/0002", "q/0004", "q/0006", "q/0008")
		either := table.Or(even, table.Equal("Even", false))
		e.selects(table.Query{Partition: "q", FromRow: "0007", Filter: either}, "q/0007", "q/0008")
	}},
}

// ordered are values of each type in order.
var ordered = map[string][]any{
	"string":  {"", "'", "A", "a", "a'", "aa", "b c", "ä"},
	"int32":   {int32(math.MinInt32), int32(-5), int32(0), int32(7), int32(10), int32(math.MaxInt32)},
	"int64":   {int64(math.MinInt64), int64(-5), int64(0), int64(7), int64(10), int64(1) << 53, int64(1)<<53 + 1, int64(math.MaxInt64)},
	"float64": {-math.MaxFloat64, -1e21, -1.5, -1e-7, 0.0, math.SmallestNonzeroFloat64, 1e-7, 2.0, 2.5, 10.0, 1e21, math.MaxFloat64},
	"time": {
		time.Date(1601, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(1969, 7, 20, 20, 17, 40, 0, time.UTC), time.Date(2026, 11, 23, 2, 40, 0, 100, time.UTC),
		time.Date(2026, 11, 23, 2, 40, 0, 200, time.UTC), time.Date(2026, 11, 23, 2, 41, 0, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	},
}

// equatable are values that have no order.
var equatable = map[string][]any{
	"bool":  {false, true},
	"GUID":  {table.GUID("00000000-0000-0000-0000-000000000000"), table.GUID("c9da6455-213d-42c9-9a79-3e9149a57833")},
	"bytes": {[]byte{}, []byte{0}, []byte("a"), []byte("a'b"), []byte{0xff, 0x00}},
}

// operators are the comparisons, and whether each holds for a value that comes before, at or after the filter's.
var operators = []struct {
	name                 string
	of                   func(property string, value any) table.Filter
	before, equal, after bool
}{
	{"eq", table.Equal, false, true, false},
	{"ne", table.NotEqual, true, false, true},
	{"lt", table.Less, true, false, false},
	{"le", table.LessOrEqual, true, true, false},
	{"gt", table.Greater, false, false, true},
	{"ge", table.GreaterOrEqual, false, true, true},
}

// comparable returns the values without those that the store is known to compare wrongly.
func (e *env) comparable(of []any) (compared []any) {
	q := e.h.Quirks
	for _, value := range of {
		why := ""
		switch v := value.(type) {
		case float64:
			if strings.Contains(strconv.FormatFloat(v, 'g', -1, 64), "e") {
				why = q.NoExponents
			}
		case time.Time:
			if v.Truncate(time.Millisecond) != v {
				why = q.CoarseTimes
			}
		}
		if why != "" {
			e.Logf("%v is not compared, a known difference: %s", value, why)
			continue
		}
		compared = append(compared, value)
	}
	return compared
}

// compare stores values of one type and compares each with each, by the first operators.
func (e *env) compare(name string, of []any, n int) {
	e.Helper()
	for i, value := range of {
		e.insert(key(name, fmt.Sprintf("%02d", i)), properties{"V": value})
	}
	for at, value := range of {
		for _, op := range operators[:n] {
			var want []string
			for i := range of {
				if i < at && op.before || i == at && op.equal || i > at && op.after {
					want = append(want, fmt.Sprintf("%s/%02d", name, i))
				}
			}
			e.selects(table.Query{Partition: name, Filter: op.of("V", value)}, want...)
		}
	}
}
