package table

import (
	"maps"
	"time"
)

// Key identifies an entity in its table. Entities are ordered by partition and then by row, in the
// order of their bytes. A partition is what transactions and snapshots reach.
type Key struct {
	Partition string // never empty
	Row       string // may be empty
}

// String returns the key as errors show it.
func (k Key) String() string { return k.Partition + "/" + k.Row }

// Less reports whether k comes before other.
func (k Key) Less(other Key) bool {
	if k.Partition != other.Partition {
		return k.Partition < other.Partition
	}
	return k.Row < other.Row
}

// ETag is a version of an entity. Every change gives an entity a version that it never had, also when it
// was deleted in between.
type ETag string

// Any is the ETag of changes that do not depend on the version: the last writer wins.
const Any ETag = "*"

// GUID is the value of a property with that type, which other programs may write: 36 characters, hexadecimal
// digits and hyphens.
type GUID string

// Entity is what a table keeps under a key. The properties of a stored entity belong to the receiver, who may
// change them.
type Entity struct {
	Key

	// Properties are its values by name. A value is a string, bool, int32, int64, float64, time.Time, []byte
	// or [GUID]. Stores keep times in UTC, cut to 100 ns. [Entity.Check] says what names and values may be.
	Properties map[string]any

	// ETag is the version that was read. [Store.Update] compares it; [Store.Insert] ignores it.
	ETag ETag

	// Modified is when the entity was last changed, by the store's clock. Changes ignore it.
	Modified time.Time
}

// Clone returns a copy that shares nothing with e.
func (e Entity) Clone() Entity {
	e.Properties = maps.Clone(e.Properties)
	for name, value := range e.Properties {
		e.Properties[name] = kept(value)
	}
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

// kept returns a value as stores keep it.
func kept(value any) any {
	switch v := value.(type) {
	case time.Time:
		return v.UTC().Truncate(timePrecision)
	case []byte:
		return append([]byte{}, v...)
	}
	return value
}

// timePrecision is that of the service's Edm.DateTime.
const timePrecision = 100 * time.Nanosecond
