package shards

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/millrace/millrace/listener"
)

// opaque reports whether a struct shows none of its fields: times, and rates, which have a test of their own.
func opaque(t reflect.Type) bool { return !t.Field(0).IsExported() }

// fill sets every number, also in nested structs and in a map, to a value of its own.
func fill(v reflect.Value, next *int64) {
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Int64, reflect.Int:
			*next++
			f.SetInt(*next)
		case reflect.Struct:
			if !opaque(f.Type()) {
				fill(f, next)
			}
		case reflect.Map:
			f.Set(reflect.MakeMap(f.Type()))
			for _, key := range []string{"deleted", "poisoned"} {
				*next++
				f.SetMapIndex(reflect.ValueOf(key).Convert(f.Type().Key()), reflect.ValueOf(*next))
			}
		}
	}
}

// sums compares every number of sum with twice that of one.
func sums(t *testing.T, sum, one reflect.Value, path string) {
	for i := range one.NumField() {
		field := path + one.Type().Field(i).Name
		switch f := one.Field(i); {
		case f.Kind() == reflect.Struct && opaque(f.Type()), field == "Phase", field == "PausedBy":
		case field == "Visibility", field == "Load.Slots", field == "Load.BatchSize": // the longest, and those that all share
			if sum.Field(i).Int() != f.Int() {
				t.Errorf("%s: got %d, want that of one, %d", field, sum.Field(i).Int(), f.Int())
			}
		case f.Kind() == reflect.Int64, f.Kind() == reflect.Int:
			if got := sum.Field(i).Int(); got != 2*f.Int() {
				t.Errorf("%s: got %d, want the sum %d", field, got, 2*f.Int())
			}
		case f.Kind() == reflect.Map:
			for _, key := range f.MapKeys() {
				if got := sum.Field(i).MapIndex(key); !got.IsValid() || got.Int() != 2*f.MapIndex(key).Int() {
					t.Errorf("%s of %v: got %v, want twice %v", field, key, got, f.MapIndex(key))
				}
			}
		case f.Kind() == reflect.Struct:
			sums(t, sum.Field(i), f, field+".")
		}
	}
}

// Every number of a listener's state is in the total. A field that is added to it is not forgotten.
func TestTheTotalHasEveryNumber(t *testing.T) {
	var one listener.State
	var next int64
	fill(reflect.ValueOf(&one).Elem(), &next)
	one.DepthAt = time.Unix(1, 0)
	var sum listener.State
	for i := range 2 {
		addCounts(&sum, one)
		addPresent(&sum, ShardState{State: one}, i == 0)
	}
	sums(t, reflect.ValueOf(sum), reflect.ValueOf(one), "")
}

func TestTheTotalHasWhatIsNewest(t *testing.T) {
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	old, recent := errors.New("old"), errors.New("recent")
	a := listener.State{LastPoll: late, LastError: old, LastErrorAt: early, DepthAt: late, PausedBy: listener.ByProgramAndQueue, PausedSince: early, Listening: true}
	b := listener.State{LastPoll: early, LastError: recent, LastErrorAt: late, DepthAt: early, PausedBy: listener.ByQueue, PausedSince: late, Listening: true}
	none := listener.State{Listening: true, PausedBy: listener.ByQueue, PausedSince: early}
	for _, order := range [][]listener.State{{a, b, none}, {b, none, a}, {none, a, b}} {
		var sum listener.State
		for i, one := range order {
			addCounts(&sum, one)
			addPresent(&sum, ShardState{State: one}, i == 0)
		}
		if !sum.LastPoll.Equal(late) || !errors.Is(sum.LastError, recent) || !sum.DepthAt.Equal(early) || sum.PausedBy != listener.ByQueue || !sum.PausedSince.Equal(late) || !sum.Listening {
			t.Errorf("got %+v, want the newest poll and error, the oldest depth, paused by the queue", sum)
		}
		addPresent(&sum, ShardState{}, false)
		if sum.Listening || sum.PausedBy != listener.NotPaused || !sum.PausedSince.IsZero() {
			t.Errorf("with one that neither listens nor is paused: got %+v, want neither", sum)
		}
	}
}
