// Package isnil finds nil where a comparison with nil does not.
package isnil

import "reflect"

// Value tells whether v is nil, or an interface that holds a nil pointer, map, slice,
// function or channel: such as a variable of a pointer type that was never set, passed
// where an interface is asked for.
func Value(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan:
		return r.IsNil()
	default:
		return false
	}
}
