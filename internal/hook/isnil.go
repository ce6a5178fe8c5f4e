package hook

import "reflect"

// IsNil reports whether v is nil, or an interface that holds a nil pointer, map, slice,
// function or channel, such as an unset pointer variable passed as an interface.
func IsNil(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan:
		return r.IsNil()
	default:
		return false
	}
}
