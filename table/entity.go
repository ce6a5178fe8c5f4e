package table

import (
	"maps"
	"strings"
	"time"
)

// Key identifies an entity in its table. Entities are ordered by partition and then by row, as [Key.Compare] does.
// A partition is what groups of changes and snapshots reach.
type Key struct {
	Partition string // never empty
	Row       string // may be empty
}

// String returns the key as errors show it.
func (k Key) String() string { return k.Partition + "/" + k.Row }

// Compare returns -1 if k comes before other, 0 if they are the same and 1 if k comes after other: by partition and
// then by row, each by its bytes. A service that compares UTF-16 has the characters from U+E000 to U+FFFF after those
// from U+10000 on; apart from these, that is the same order.
func (k Key) Compare(other Key) int {
	if order := strings.Compare(k.Partition, other.Partition); order != 0 {
		return order
	}
	return strings.Compare(k.Row, other.Row)
}

// ETag is a version of an entity. Every change gives an entity a version that it never had, also when it
// was deleted in between.
type ETag string

// Any is the ETag of changes that do not depend on the version: the last writer wins.
const Any ETag = "*"

// GUID is the value of a property with that type, which other programs may write: 36 characters, hexadecimal
// digits and hyphens. Upper and lower case are the same; stores keep lower case.
type GUID string

// Entity is what a table keeps under a key. A store keeps nothing of an entity that it was given, and what it returns
// belongs to the receiver, who may change it.
type Entity struct {
	Key

	// Properties are its values by name. A value is a string, bool, int32, int64, float64, time.Time, []byte
	// or [GUID]. Stores keep times in UTC, cut to 100 ns. [Entity.Check] says what names and values may be.
	// Nil means none; in an entity that a store returns it is never nil.
	Properties map[string]any

	// ETag is the version that was read. [Store.Update] compares it; [Store.Insert] ignores it.
	ETag ETag

	// Modified is when the entity was last changed, by the store's clock. Changes ignore it.
	Modified time.Time
}

// Clone returns a copy that shares nothing with e, with its properties as stores keep them: not nil, times in UTC and
// cut to 100 ns, GUIDs in lower case.
func (e Entity) Clone() Entity {
	properties := maps.Clone(e.Properties)
	if properties == nil {
		properties = map[string]any{}
	}
	for name, value := range properties {
		properties[name] = kept(value)
	}
	e.Properties = properties
	return e
}

// Text returns a property that is a string, or "" if there is none.
func (e Entity) Text(property string) string { return valueOf[string](e, property) }

// Time returns a property that is a time, or the zero time if there is none.
func (e Entity) Time(property string) time.Time { return valueOf[time.Time](e, property) }

// Int returns a property that is an int64 or int32, or 0 if there is none.
func (e Entity) Int(property string) int64 {
	if small, ok := e.Properties[property].(int32); ok {
		return int64(small)
	}
	return valueOf[int64](e, property)
}

// Bool returns a property that is a bool, or false if there is none.
func (e Entity) Bool(property string) bool { return valueOf[bool](e, property) }

func valueOf[T any](e Entity, property string) T {
	value, _ := e.Properties[property].(T)
	return value
}

func kept(value any) any {
	switch v := value.(type) {
	case time.Time:
		return v.UTC().Truncate(timePrecision)
	case []byte:
		return append([]byte{}, v...) // never nil
	case GUID:
		return GUID(strings.ToLower(string(v)))
	}
	return value
}

// timePrecision is that of the service's Edm.DateTime.
const timePrecision = 100 * time.Nanosecond
