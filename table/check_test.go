package table_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/table"
)

func TestKeysAtTheirLimits(t *testing.T) {
	for _, part := range []string{"a", " ", "%", "+", "'", strings.Repeat("k", 512), strings.Repeat("🙂", 256), "\u00a0", "\x20", "\x7e"} {
		if err := (table.Key{Partition: part, Row: part}).Check(); err != nil {
			t.Errorf("%.10q: %v", part, err)
		}
	}
	if err := (table.Key{Partition: "p"}).Check(); err != nil {
		t.Errorf("an empty row: %v", err)
	}
	for _, c := range []struct {
		k    table.Key
		kind error
		want string
	}{
		{table.Key{Row: "r"}, table.ErrInvalid, "the partition is empty"},
		{table.Key{Partition: "a/b"}, table.ErrInvalid, `the partition "a/b" has '/' in it; leave out control characters and / \ # ?, or escape them`},
		{table.Key{Partition: "p", Row: "a\nb"}, table.ErrInvalid, `the row "a\nb" has '\n' in it`},
		{table.Key{Partition: "p", Row: "a\u0085"}, table.ErrInvalid, `the row "a\u0085" has '\u0085' in it`},
		{table.Key{Partition: "p", Row: "\xff"}, table.ErrInvalid, `the row "\xff" is not UTF-8`},
		{table.Key{Partition: "p", Row: strings.Repeat("k", 513)}, table.ErrTooLarge, "the row has 1026 bytes in UTF-16, and may have 1024"},
		{table.Key{Partition: strings.Repeat("🙂", 257)}, table.ErrTooLarge, "the partition has 1028 bytes in UTF-16, and may have 1024"},
	} {
		err := c.k.Check()
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.20q: %v, want %s", c.k, err, c.want)
		}
	}
}

// TestSizesByTheFormula has the examples of the formula: 4 for the entity, 2 for each unit of UTF-16 in keys, names and
// texts, 8 for each property, 4 for the length of a text or bytes.
func TestSizesByTheFormula(t *testing.T) {
	for _, c := range []struct {
		want int
		e    table.Entity
	}{
		{4 + 2, table.Entity{Key: table.Key{Partition: "p"}}},
		{4 + 4 + 2, table.Entity{Key: table.Key{Partition: "🙂", Row: "r"}}},
		{6 + 8 + 2 + 4, table.Entity{Key: table.Key{Partition: "p"}, Properties: map[string]any{"S": ""}}},
		{6 + 8 + 2 + 4 + 6, table.Entity{Key: table.Key{Partition: "p"}, Properties: map[string]any{"S": "a🙂"}}},
		{6 + 8 + 2 + 4 + 3, table.Entity{Key: table.Key{Partition: "p"}, Properties: map[string]any{"B": []byte{1, 2, 3}}}},
		{6 + 8 + 2 + 1, table.Entity{Key: table.Key{Partition: "p"}, Properties: map[string]any{"T": true}}},
		{6 + 8 + 6 + 4, table.Entity{Key: table.Key{Partition: "p"}, Properties: map[string]any{"I32": int32(1)}}},
		{6 + 8 + 6 + 8, table.Entity{Key: table.Key{Partition: "p"}, Properties: map[string]any{"I64": int64(1)}}},
		{6 + 8 + 4 + 8, table.Entity{Key: table.Key{Partition: "p"}, Properties: map[string]any{"F6": 1.0}}},
		{6 + 8 + 8 + 16, table.Entity{Key: table.Key{Partition: "p"}, Properties: map[string]any{"GUID": table.GUID("c9da6455-213d-42c9-9a79-3e9149a57833")}}},
		{6 + 10 + 1 + 8 + 4 + 8, table.Entity{Key: table.Key{Partition: "p"}, Properties: map[string]any{"T": false, "At": time.Unix(0, 0)}}},
	} {
		if got := c.e.Size(); got != c.want {
			t.Errorf("%v: got %d, want %d", c.e, got, c.want)
		}
	}
}

// TestWhatIsRefusedHasNoSize: Size does not check.
func TestWhatIsRefusedHasNoSize(t *testing.T) {
	e := table.Entity{Key: table.Key{Partition: "p"}, Properties: map[string]any{"V": 1, "T": true}}
	if got := e.Size(); got != 6+8+2+1 {
		t.Errorf("got %d", got)
	}
}

// TestSizesAdd: the size of an entity is the sum over its parts, whatever they are.
func TestSizesAdd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEntity(t)
		e.Key = table.Key{Partition: rapid.String().Draw(t, "partition"), Row: rapid.String().Draw(t, "row")}
		want := 4 + units(e.Partition) + units(e.Row)
		for name, value := range e.Properties {
			want += 8 + units(name) + sizeOf(value)
		}
		if got := e.Size(); got != want {
			t.Fatalf("%v: got %d, want %d", e, got, want)
		}
	})
}

func units(text string) int { return 2 * len(utf16.Encode([]rune(text))) }

func sizeOf(value any) int {
	switch v := value.(type) {
	case string:
		return units(v) + 4
	case []byte:
		return len(v) + 4
	case bool:
		return 1
	case int32:
		return 4
	case table.GUID:
		return 16
	}
	return 8
}

func TestEntitiesAtTheirLimits(t *testing.T) {
	with := func(p map[string]any) table.Entity {
		return table.Entity{Key: table.Key{Partition: "p"}, Properties: p}
	}
	many := map[string]any{}
	for i := range 252 {
		many[fmt.Sprintf("P%d", i)] = true
	}
	for name, e := range map[string]table.Entity{
		"252 properties":      with(many),
		"a text of 64 KiB":    with(map[string]any{"V": strings.Repeat("t", 32<<10)}),
		"bytes of 64 KiB":     with(map[string]any{"V": bytes.Repeat([]byte{1}, 64<<10)}),
		"no properties":       with(nil),
		"the first time":      with(map[string]any{"V": time.Date(1601, 1, 1, 0, 0, 0, 0, time.UTC)}),
		"the last time":       with(map[string]any{"V": time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC).Add(-1)}),
		"a name of 255":       with(map[string]any{strings.Repeat("n", 255): true}),
		"an underscore":       with(map[string]any{"_": true}),
		"an ETag and a time":  {Key: table.Key{Partition: "p"}, ETag: "\x00", Modified: time.Unix(0, 0)},
		"the largest float64": with(map[string]any{"V": math.MaxFloat64}),
	} {
		if err := e.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]struct {
		e    table.Entity
		kind error
		want string
	}{
		"an early time in another zone": {with(map[string]any{"V": time.Date(1601, 1, 1, 0, 30, 0, 0, time.FixedZone("", 3600))}), table.ErrInvalid, "the property V is a time in the year 1600: use 1601 to 9999"},
		"NaN":                           {with(map[string]any{"V": math.NaN()}), table.ErrInvalid, "the property V is NaN"},
		"an int":                        {with(map[string]any{"V": 1}), table.ErrInvalid, "the property V is a int: use string, bool, int32, int64, float64, time.Time, []byte or table.GUID"},
		"nil":                           {with(map[string]any{"V": nil}), table.ErrInvalid, "the property V is a <nil>"},
		"a long text":                   {with(map[string]any{"V": strings.Repeat("t", 32<<10+1)}), table.ErrTooLarge, "the property V has 65538 bytes, and may have 65536; store the content in a blob"},
		"a reserved name":               {with(map[string]any{"Timestamp": time.Now()}), table.ErrInvalid, "Timestamp is no property: use Key and Modified"},
		"a bad name":                    {with(map[string]any{"a-b": true}), table.ErrInvalid, `"a-b" is no name of a property; use letters, digits and underscores, up to 255, and no digit first`},
	} {
		if err := c.e.Check(); !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	many["More"] = true
	if err := with(many).Check(); !errors.Is(err, table.ErrTooLarge) || !strings.Contains(err.Error(), "the entity has 253 properties, and may have 252") {
		t.Errorf("253 properties: %v", err)
	}
}

// TestEntitiesOfAMebibyte: a byte more is too large.
func TestEntitiesOfAMebibyte(t *testing.T) {
	e := table.Entity{Key: table.Key{Partition: "p"}, Properties: map[string]any{}}
	for i := range 15 {
		e.Properties[fmt.Sprintf("P%02d", i)] = bytes.Repeat([]byte{1}, 64<<10)
	}
	e.Properties["Rest"] = []byte{}
	room := 1<<20 - e.Size()
	e.Properties["Rest"] = make([]byte, room)
	if err := e.Check(); err != nil || e.Size() != 1<<20 {
		t.Errorf("%d bytes: %v", e.Size(), err)
	}
	e.Properties["Rest"] = make([]byte, room+1)
	if err := e.Check(); !errors.Is(err, table.ErrTooLarge) || !strings.Contains(err.Error(), "the entity has 1048577 bytes, and may have 1048576; store the content in a blob") {
		t.Errorf("a byte more: %v", err)
	}
}

func TestClonesAreAsStored(t *testing.T) {
	data := []byte{1}
	e := table.Entity{Key: table.Key{Partition: "p"}, ETag: "v", Properties: map[string]any{
		"At": time.Date(2026, 11, 23, 2, 40, 0, 199, time.FixedZone("", 3600)), "Data": data, "None": []byte(nil), "ID": table.GUID("C9DA6455-213D-42C9-9A79-3E9149A57833"),
	}}
	c := e.Clone()
	data[0]++
	delete(e.Properties, "ID")
	if c.Key != e.Key || c.ETag != "v" || c.Properties["At"] != time.Date(2026, 11, 23, 1, 40, 0, 100, time.UTC) ||
		c.Properties["Data"].([]byte)[0] != 1 || c.Properties["None"].([]byte) == nil || c.Properties["ID"] != table.GUID("c9da6455-213d-42c9-9a79-3e9149a57833") {
		t.Errorf("the clone is %+v", c)
	}
	if (table.Entity{}).Clone().Properties == nil {
		t.Error("the clone of no properties is nil")
	}
}

func TestPropertiesByType(t *testing.T) {
	moment := time.Unix(1, 0)
	e := table.Entity{Properties: map[string]any{"S": "text", "I": int32(-3), "L": int64(1 << 40), "T": true, "At": moment, "F": 1.5}}
	if e.Text("S") != "text" || e.Int("I") != -3 || e.Int("L") != 1<<40 || !e.Bool("T") || !e.Time("At").Equal(moment) {
		t.Errorf("properties of %v", e)
	}
	for _, name := range []string{"none", "F"} {
		if e.Text(name) != "" || e.Int(name) != 0 || e.Bool(name) || !e.Time(name).IsZero() {
			t.Errorf("%s has a value", name)
		}
	}
	if (table.Entity{}).Text("S") != "" {
		t.Error("no properties have a text")
	}
}
