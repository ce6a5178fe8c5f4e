package listener

import (
	"reflect"
	"testing"

	"github.com/millrace/millrace/dispatcher"
)

// Every field of dispatcher.Observer exists in Observer and is passed on; otherwise it would be
// a hook that is never called.
func TestTheDispatcherGetsEveryHookOfTheObserver(t *testing.T) {
	var o Observer
	of := reflect.TypeFor[dispatcher.Observer]()
	for field := range of.Fields() {
		set := reflect.ValueOf(&o).Elem().FieldByName(field.Name)
		if !set.IsValid() {
			t.Errorf("there is no %s", field.Name)
			continue
		}
		set.Set(reflect.MakeFunc(field.Type, func([]reflect.Value) []reflect.Value { return nil }))
	}
	given := reflect.ValueOf(o.dispatcher())
	for field := range of.Fields() {
		if given.FieldByName(field.Name).IsNil() {
			t.Errorf("%s is not handed over", field.Name)
		}
	}
}
