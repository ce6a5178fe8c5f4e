package filetable

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/table"
)

// recordOf returns the finished record of an entity, and its key.
func recordOf(e table.Entity, version uint64) (key, record []byte) {
	key, record = keyOf(e.Key), newRecord(e)
	finish(record, key, version, e.Modified)
	return key, record
}

func TestRecordsGiveTheirEntitiesBack(t *testing.T) {
	times := rapid.Custom(func(t *rapid.T) time.Time { return fromTicks(rapid.Uint64Range(0, endOfTicks-1).Draw(t, "ticks")) })
	finite := rapid.Float64().Filter(func(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) })
	value := rapid.OneOf(rapid.String().AsAny(), rapid.SliceOf(rapid.Byte()).AsAny(), rapid.Bool().AsAny(), rapid.Int32().AsAny(), rapid.Int64().AsAny(),
		finite.AsAny(), times.AsAny(), rapid.Just(table.GUID("0f8fad5b-d9cb-469f-a165-70867728950e")).AsAny())
	rapid.Check(t, func(t *rapid.T) {
		e := table.Entity{
			Key:        table.Key{Partition: rapid.StringMatching(`[a-zä-ü ]{1,9}`).Draw(t, "partition"), Row: rapid.StringMatching(`[a-zä-ü ]{0,9}`).Draw(t, "row")},
			Properties: rapid.MapOfN(rapid.StringMatching(`[A-Za-z_][A-Za-z0-9_]{0,9}`), value, 0, 20).Draw(t, "properties"),
			Modified:   times.Draw(t, "modified"),
		}
		version := rapid.Uint64Min(1).Draw(t, "version")
		key, record := recordOf(e, version)
		got, err := readEntity(key, record)
		want := e.Clone()
		want.ETag = etagOf(version)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %#v, %v, want %#v", got, err, want)
		}
		if i := rapid.IntRange(0, len(record)-1).Draw(t, "damaged"); i > 0 {
			record[i] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			if _, err := readEntity(key, record); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("byte %d is damaged: got %v, want ErrCorrupt", i, err)
			}
		}
	})
}

// TestKeysKeepTheirOrder: the order of keys in the tree is that of entities.
func TestKeysKeepTheirOrder(t *testing.T) {
	part := rapid.StringMatching(`[ a-c\x{e4}]{0,3}`)
	rapid.Check(t, func(t *rapid.T) {
		a := table.Key{Partition: part.Draw(t, "a.partition"), Row: part.Draw(t, "a.row")}
		b := table.Key{Partition: part.Draw(t, "b.partition"), Row: part.Draw(t, "b.row")}
		if got := bytes.Compare(keyOf(a), keyOf(b)) < 0; got != (a.Compare(b) < 0) || readKey(keyOf(a)) != a {
			t.Fatalf("%q before %q: got %v; %q came back as %q", a, b, got, a, readKey(keyOf(a)))
		}
	})
}

// TestDamagedRecordsSaySo: also those whose checksum is right.
func TestDamagedRecordsSaySo(t *testing.T) {
	property := func(kind byte, value ...byte) []byte { return append([]byte{1, 1, 'P', kind}, value...) }
	after9999 := binary.BigEndian.AppendUint64(nil, endOfTicks)
	for name, c := range map[string]struct {
		content []byte // after the header
		says    string
	}{
		"nothing":             {nil, "a length is wrong"},
		"too many":            {[]byte{3, 0, 0}, "a length is wrong"},
		"a length of no end":  {bytes.Repeat([]byte{0xff}, 12), "a length is wrong"},
		"a name is cut off":   {[]byte{1, 5, 'P'}, "a length is wrong"},
		"no type":             {[]byte{1, 1, 'P'}, "ends too early"},
		"type 0":              {property(0), "no property has the type 0"},
		"type 10":             {property(10), "no property has the type 10"},
		"a string is cut off": {property(typeString, 2, 'x'), "a length is wrong"},
		"bytes are cut off":   {property(typeBytes, 2, 'x'), "a length is wrong"},
		"a GUID is cut off":   {property(typeGUID, 2, 'x'), "ends too early"},
		"an int32 too large":  {property(typeInt32, binary.AppendVarint(nil, 1<<31)...), "no int32"},
		"an int64 is cut off": {property(typeInt64, 0x80), "a number is wrong"},
		"a float is cut off":  {property(typeFloat64, 1, 2, 3), "ends too early"},
		"a float is NaN":      {property(typeFloat64, bytes.Repeat([]byte{0xff}, 8)...), "NaN"},
		"a time is cut off":   {property(typeTime, 1), "ends too early"},
		"a time is too late":  {property(typeTime, after9999...), "9999"},
		"more follows":        {property(typeTrue, 0), "1 bytes follow"},
		"a name twice":        {[]byte{2, 1, 'P', typeTrue, 1, 'P', typeTrue}, "follows"},
		"names out of order":  {[]byte{2, 1, 'P', typeTrue, 1, 'O', typeTrue}, "follows"},
	} {
		t.Run(name, func(t *testing.T) {
			key, record := recordOf(table.Entity{Key: table.Key{Partition: "p"}, Modified: time.Now()}, 1)
			record = append(record[:headerSize], c.content...)
			finish(record, key, 1, time.Now())
			if e, err := readEntity(key, record); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, %v, want ErrCorrupt and %q", e, err, c.says)
			}
		})
	}
	key, record := recordOf(table.Entity{Key: table.Key{Partition: "p"}, Modified: time.Now()}, 1)
	record[0] = recordFormat + 1
	if _, err := readEntity(key, record); !errors.Is(err, ErrNewer) {
		t.Errorf("a record of a later format: got %v, want ErrNewer", err)
	}
}

// TestRecordsAreCompact: an entity takes little more than its texts.
func TestRecordsAreCompact(t *testing.T) {
	e := table.Entity{Key: table.Key{Partition: "p"}, Properties: map[string]any{"Title": strings.Repeat("x", 100), "Likes": int64(100), "Open": true}}
	_, record := recordOf(e, 1)
	if want := headerSize + 1 + 1 + 5 + 1 + 1 + 100 + 1 + 5 + 1 + 2 + 1 + 4 + 1; len(record) != want {
		t.Errorf("got %d bytes, want %d", len(record), want)
	}
}

// FuzzRecord: whatever follows the header of a record, reading it is an error or gives an entity that is written the
// same way again.
func FuzzRecord(f *testing.F) {
	_, record := recordOf(table.Entity{Key: table.Key{Partition: "p"}, Properties: map[string]any{
		"A": "text", "B": []byte{1}, "C": true, "D": int32(-1), "E": int64(1), "F": 0.5, "G": time.Now(), "H": table.GUID("0f8fad5b-d9cb-469f-a165-70867728950e"), "I": false,
	}}, 1)
	f.Add(record[headerSize:])
	f.Fuzz(func(t *testing.T, content []byte) {
		key, record := recordOf(table.Entity{Key: table.Key{Partition: "p"}, Modified: time.Now()}, 1)
		record = append(record[:headerSize], content...)
		finish(record, key, 1, time.Now())
		e, err := readEntity(key, record)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("got %v, want ErrCorrupt", err)
			}
			return
		}
		_, again := recordOf(e, 1)
		back, err := readEntity(key, again)
		if err != nil || !reflect.DeepEqual(back, e) || len(again) > len(record) {
			t.Fatalf("got %v, %v, want %v", back, err, e)
		}
	})
}
