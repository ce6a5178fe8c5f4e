package table_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/table"
)

// operators make the comparisons by the names that the service gives them.
var operators = map[string]func(property string, value any) table.Filter{
	"eq": table.Equal, "ne": table.NotEqual, "lt": table.Less, "le": table.LessOrEqual, "gt": table.Greater, "ge": table.GreaterOrEqual,
}

// condition is a filter that is evaluated directly: a comparison, or parts.
type condition struct {
	operator, property string
	value              any
	connective         string
	parts              []condition
}

func (c condition) filter() table.Filter {
	if c.connective == "" {
		return operators[c.operator](c.property, c.value)
	}
	var parts []table.Filter
	for _, part := range c.parts {
		parts = append(parts, part.filter())
	}
	if c.connective == "and" {
		return table.And(parts...)
	}
	return table.Or(parts...)
}

// holds evaluates a condition by the text of the documentation.
func (c condition) holds(e table.Entity) bool {
	switch c.connective {
	case "and":
		for _, part := range c.parts {
			if !part.holds(e) {
				return false
			}
		}
		return true
	case "or":
		for _, part := range c.parts {
			if part.holds(e) {
				return true
			}
		}
		return false
	}
	have, exists := e.Properties[c.property]
	if !exists || fmt.Sprintf("%T", have) != fmt.Sprintf("%T", c.value) {
		return false
	}
	less, equal := lessOrEqual(have, c.value)
	return map[string]bool{"eq": equal, "ne": !equal, "lt": less, "le": less || equal, "gt": !less && !equal, "ge": !less}[c.operator]
}

func lessOrEqual(a, b any) (less, equal bool) {
	switch a := a.(type) {
	case string:
		return a < b.(string), a == b.(string)
	case int32:
		return a < b.(int32), a == b.(int32)
	case int64:
		return a < b.(int64), a == b.(int64)
	case float64:
		return a < b.(float64), a == b.(float64)
	case time.Time:
		return a.Before(b.(time.Time)), a.Equal(b.(time.Time))
	case []byte:
		return false, bytes.Equal(a, b.([]byte))
	}
	return false, a == b
}

// drawValue has few values of each type, so that some are equal.
func drawValue(t *rapid.T) any {
	return rapid.SampledFrom([]any{
		"", "a", "a'b", "b", int32(0), int32(1), int32(-7), int64(0), int64(1), int64(1 << 53), 0.0, 1.0, -2.5, 1e300, true, false,
		[]byte{}, []byte("a"), time.Unix(0, 0).UTC(), time.Unix(1e9, 100).UTC(), table.GUID("c9da6455-213d-42c9-9a79-3e9149a57833"),
	}).Draw(t, "value")
}

func drawCondition(t *rapid.T, depth int) condition {
	if depth == 0 || rapid.Bool().Draw(t, "comparison") {
		return drawComparison(t)
	}
	c := condition{connective: rapid.SampledFrom([]string{"and", "or"}).Draw(t, "connective")}
	for range rapid.IntRange(1, 2).Draw(t, "parts") {
		c.parts = append(c.parts, drawCondition(t, depth-1))
	}
	return c
}

func drawComparison(t *rapid.T) condition {
	c := condition{property: rapid.SampledFrom([]string{"A", "B", "C"}).Draw(t, "property"), value: drawValue(t)}
	choice := []string{"eq", "ne"}
	switch c.value.(type) {
	case bool, []byte, table.GUID:
	default:
		choice = append(choice, "lt", "le", "gt", "ge")
	}
	c.operator = rapid.SampledFrom(choice).Draw(t, "operator")
	return c
}

func drawEntity(t *rapid.T) table.Entity {
	e := table.Entity{Properties: map[string]any{}}
	for _, name := range []string{"A", "B", "C"} {
		if rapid.Bool().Draw(t, "with "+name) {
			e.Properties[name] = drawValue(t)
		}
	}
	return e.Clone()
}

// TestFiltersMatchWhatTheySay compares filters with a direct evaluation, before and after they were text.
func TestFiltersMatchWhatTheySay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, e := drawCondition(t, 3), drawEntity(t)
		f := c.filter()
		if err := f.Check(); err != nil {
			t.Fatal(err)
		}
		if got := f.Match(e); got != c.holds(e) {
			t.Fatalf("%v matches %v: %v", f, e.Properties, got)
		}
		read, err := parse(f.String())
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		if got := read.holds(e); got != c.holds(e) {
			t.Fatalf("the text %q matches %v: %v", f, e.Properties, got)
		}
	})
}

// TestAFilterKeepsNothingOfItsArguments: a filter never changes.
func TestAFilterKeepsNothingOfItsArguments(t *testing.T) {
	data := []byte("a")
	f := table.Equal("Data", data)
	parts := []table.Filter{f, table.Equal("N", int32(1))}
	both, either := table.And(parts...), table.Or(parts...)
	data[0], parts[0], parts[1] = 'b', table.Equal("X", true), table.Equal("Y", true)
	for f, want := range map[string]string{
		f.String():      "Data eq X'61'",
		both.String():   "(Data eq X'61') and (N eq 1)",
		either.String(): "(Data eq X'61') or (N eq 1)",
	} {
		if f != want {
			t.Errorf("the filter is %s, want %s", f, want)
		}
	}
}

func TestFiltersAsText(t *testing.T) {
	a, b := table.Equal("A", "x"), table.Less("B", int64(2))
	for want, f := range map[string]table.Filter{
		"":                 {},
		"A eq 'x'":         a,
		"A ne 'it''s'":     table.NotEqual("A", "it's"),
		"B lt 2L":          b,
		"B ge -2147483648": table.GreaterOrEqual("B", int32(-1<<31)),
		"B gt 1.0":         table.Greater("B", 1.0),
		"B gt -0.5":        table.Greater("B", -0.5),
		"B gt 1e+300":      table.Greater("B", 1e300),
		"B le 5e-324":      table.LessOrEqual("B", 5e-324),
		"B eq true":        table.Equal("B", true),
		"B eq X'00ff'":     table.Equal("B", []byte{0, 255}),
		"B eq X''":         table.Equal("B", []byte(nil)),
		"B eq guid'c9da6455-213d-42c9-9a79-3e9149a57833'": table.Equal("B", table.GUID("C9DA6455-213D-42C9-9A79-3E9149A57833")),
		"B lt datetime'2026-11-23T01:40:00.1234567Z'":     table.Less("B", time.Date(2026, 11, 23, 2, 40, 0, 123_456_789, time.FixedZone("", 3600))),
		"(A eq 'x') and (B lt 2L)":                        table.And(a, b),
		"((A eq 'x') or (B lt 2L)) and (A eq 'x')":        table.And(table.Or(a, b), a),
		"(B lt 2L)":                 table.And(table.Filter{}, b, table.Or(a, table.Filter{})),
		"((B lt 2L)) or (A eq 'x')": table.Or(table.And(b), a),
	} {
		if got := f.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if err := f.Check(); err != nil {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestAFilterThatSaysNothingMatchesAll: text and Match agree on parts that match everything.
func TestAFilterThatSaysNothingMatchesAll(t *testing.T) {
	a, all := table.Equal("A", "x"), table.Filter{}
	for _, f := range []table.Filter{all, table.And(all), table.Or(all), table.Or(a, all), table.And(table.Or(a, all)), table.Or(a, table.And(all, all))} {
		if f.String() != "" || !f.Match(table.Entity{}) || f.Check() != nil {
			t.Errorf("the filter %q matches everything: %v, %v", f, f.Match(table.Entity{}), f.Check())
		}
	}
}

func TestFiltersThatAreRefused(t *testing.T) {
	fifteen := make([]table.Filter, 15)
	for i := range fifteen {
		fifteen[i] = table.Equal("A", "x")
	}
	if err := table.Or(fifteen...).Check(); err != nil {
		t.Errorf("15 comparisons: %v", err)
	}
	// The bounds of a query go to the service as comparisons too.
	if err := (table.Query{Partition: "p", FromRow: "a", ToRow: "b", Filter: table.Or(fifteen[:12]...)}).Check(); err != nil {
		t.Errorf("12 comparisons and 3 bounds: %v", err)
	}
	for _, q := range []table.Query{{Partition: "p", Filter: table.Or(fifteen...)}, {Partition: "p", FromRow: "a", ToRow: "b", Filter: table.Or(fifteen[:13]...)}} {
		if err := q.Check(); !errors.Is(err, table.ErrInvalid) || !strings.Contains(err.Error(), "the query has 16 comparisons, its bounds included") {
			t.Errorf("16 comparisons with the bounds: %v", err)
		}
	}
	for want, f := range map[string]table.Filter{
		"the filter has 16 comparisons, and may have 15":       table.And(table.Or(fifteen...), fifteen[0]),
		"the filter has an empty and":                          table.Or(table.And(), fifteen[0]),
		`"A eq 1 or B" is no name of a property`:               table.Equal("A eq 1 or B", "x"),
		"PartitionKey is no property":                          table.Equal("PartitionKey", "x"),
		"is a int: use string":                                 table.Equal("A", 1),
		"the filter orders A by a bool; use Equal or NotEqual": table.Less("A", true),
	} {
		if err := f.Check(); !errors.Is(err, table.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
	if err := table.Equal("A", strings.Repeat("x", 1<<16)).Check(); !errors.Is(err, table.ErrTooLarge) {
		t.Errorf("a text of 128 KiB: %v", err)
	}
}
