package filetable

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/table"
)

// FuzzPages: whatever a file has, opening it is an error or finds a sound tree.
func FuzzPages(f *testing.F) {
	path := scratch(f)
	db := opened(f, path)
	s := tableOf(f, db, "Channels")
	for i := range 40 {
		inserted(f, s, entity("p", strings.Repeat("r", i), strings.Repeat("x", 100)))
	}
	closed(f, db)
	content := withoutReserve(f, readFile(f, path))
	f.Add(3*newestMeta(f, content).PageSize, []byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, at uint32, damage []byte) {
		damaged := slices.Clone(content)
		copy(damaged[int(at)%len(damaged):], damage)
		err := checkPages(bytes.NewReader(damaged), int64(len(damaged)))
		if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewer) {
			t.Fatalf("got %v, want ErrCorrupt", err)
		}
		if err == nil {
			path := scratch(t)
			writeFile(t, path, damaged)
			db := opened(t, path)
			for _, err := range table.All(t.Context(), tableOf(t, db, "Channels"), table.Query{}) {
				if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewer) {
					t.Fatalf("got %v, want ErrCorrupt", err)
				}
			}
		}
	})
}
