package listener

import (
	"reflect"
	"testing"

	"github.com/millrace/millrace/dispatcher"
)

// Every hook of dispatcher.Observer exists in Observer and is passed on; otherwise it would never
// be called.
func TestTheDispatcherGetsEveryHookOfTheObserver(t *testing.T) {
	var o Observer
	hooks := reflect.TypeFor[dispatcher.Observer]()
	for hook := range hooks.Fields() {
		field := reflect.ValueOf(&o).Elem().FieldByName(hook.Name)
		if !field.IsValid() {
			t.Errorf("Observer: got no field %s, want one", hook.Name)
			continue
		}
		field.Set(reflect.MakeFunc(hook.Type, func([]reflect.Value) []reflect.Value { return nil }))
	}
	passed := reflect.ValueOf(o.dispatcher())
	for hook := range hooks.Fields() {
		if passed.FieldByName(hook.Name).IsNil() {
			t.Errorf("dispatcher's %s: got nil, want the hook", hook.Name)
		}
	}
}
