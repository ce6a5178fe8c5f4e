package table_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/table"
)

// Modified has the precision of stored times.
func TestModifiedIsCutTo100ns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(1050)
		s, k := table.Memory("t"), table.Key{Partition: "p"}
		if _, err := s.Insert(t.Context(), table.Entity{Key: k}); err != nil {
			t.Fatal(err)
		}
		if e, err := s.Get(t.Context(), k); err != nil || !e.Modified.Equal(time.Now().Truncate(100)) {
			t.Errorf("got %v, %v; want %v", e.Modified, err, time.Now().Truncate(100))
		}
	})
}
