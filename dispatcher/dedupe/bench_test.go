package dedupe_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/dispatcher/dedupe"
)

// What a guard adds to a message: a lookup before the handler and a record after it.
func BenchmarkAMessage(b *testing.B) {
	memory, err := dedupe.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	shared, err := dedupe.NewShared(blob.Memory(), container, nil)
	if err != nil {
		b.Fatal(err)
	}
	dir, err := blob.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer dir.Close()
	inDirectory, err := dedupe.NewShared(dir, container, nil)
	if err != nil {
		b.Fatal(err)
	}
	for name, g := range map[string]*dedupe.Guard{"memory": memory, "shared": shared, "directory": inDirectory} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				n++
				key := fmt.Sprint("devstoreaccount1/orders?job=", name, n)
				h, err := g.Begin(b.Context(), key, "message", time.Minute)
				if err != nil {
					b.Fatal(err)
				}
				if err := h.Record(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
