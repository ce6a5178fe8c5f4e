package internal_test

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/internal/hook"
)

func TestWhatIsNil(t *testing.T) {
	var pointer *int
	var function func()
	var err error
	for name, test := range map[string]struct {
		value any
		want  bool
	}{
		"nothing":         {nil, true},
		"a nil interface": {err, true},
		"a nil pointer":   {pointer, true},
		"a nil function":  {function, true},
		"a nil map":       {map[string]int(nil), true},
		"a nil slice":     {[]int(nil), true},
		"a nil channel":   {(chan int)(nil), true},
		"a number":        {0, false},
		"a struct":        {struct{}{}, false},
		"an error":        {errors.New("x"), false},
		"a pointer":       {new(int), false},
		"an empty slice":  {[]int{}, false},
	} {
		if got := hook.IsNil(test.value); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}
