package units

import (
	"testing"
	"time"
)

func TestDurationsWithoutAUnitAreRefused(t *testing.T) {
	for _, c := range []struct {
		check func(string, time.Duration) error
		d     time.Duration
		want  string
	}{
		{Wait, -1, ""},
		{Wait, 0, ""},
		{Wait, 30, "Timeout 30ns is shorter than 1ms: give it a unit, such as 30*time.Second"},
		{Wait, time.Millisecond - 1, "Timeout 999.999µs is shorter than 1ms: give it a unit, such as 999999*time.Second"},
		{Wait, time.Millisecond, ""},
		{Visibility, -1, ""},
		{Visibility, 30, "Timeout 30ns is shorter than 1s: give it a unit, such as 30*time.Second"},
		{Visibility, time.Second - time.Millisecond, "Timeout 999ms is shorter than 1s"},
		{Visibility, time.Second, ""},
	} {
		got := ""
		if err := c.check("Timeout", c.d); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%v: got %q, want %q", c.d, got, c.want)
		}
	}
}
