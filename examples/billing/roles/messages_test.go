package roles

import "testing"

func TestInvalidMessagesArePoison(t *testing.T) {
	for _, bad := range []interface{ check() error }{
		&Batch{Name: "../etc"}, &Batch{Name: day1, Done: -1},
		&WorkItem{Batch: day1, Item: 1, Items: 1}, &WorkItem{Batch: day1, Item: -1, Items: 1}, &WorkItem{Batch: "x", Items: 1},
		&WorkItem{Batch: day1, Items: 1 << 40}, &Result{Batch: day1}, &Result{Batch: "2026-11-32", Items: 1},
	} {
		if bad.check() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}
