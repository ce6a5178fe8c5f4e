package table_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/table"
)

// What Modify returns for ErrUnchanged has the key and the version that were read, whatever the function did to them.
func TestModifyReturnsTheKeyAndVersionThatWereRead(t *testing.T) {
	s, k := table.Memory("t"), table.Key{Partition: "p", Row: "r"}
	etag, err := s.Insert(t.Context(), table.Entity{Key: k})
	if err != nil {
		t.Fatal(err)
	}
	e, err := table.Modify(t.Context(), s, k, func(e *table.Entity) error {
		e.Key, e.ETag = table.Key{Partition: "other"}, "other"
		return table.ErrUnchanged
	}, nil)
	if err != nil || e.Key != k || e.ETag != etag {
		t.Errorf("got %v with %q, %v; want %v with %q", e.Key, e.ETag, err, k, etag)
	}
}

// alwaysFirst is a store in which another writer always comes first.
type alwaysFirst struct{ table.Store }

func (alwaysFirst) Update(context.Context, table.Entity) (table.ETag, error) {
	return "", table.ErrPreconditionFailed
}

// A context that ends while Modify waits for other writers ends it with the context's cause, and with no entity.
func TestModifyEndsInAWaitWithTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, k := table.Memory("t"), table.Key{Partition: "p", Row: "r"}
		if _, err := s.Insert(t.Context(), table.Entity{Key: k}); err != nil {
			t.Fatal(err)
		}
		stopped := errors.New("stopped")
		ctx, cancel := context.WithCancelCause(t.Context())
		e, err := table.Modify(ctx, alwaysFirst{s}, k, func(*table.Entity) error {
			// A short time after the write, so in the wait. The wait may be shorter: then the next read fails with the cause too.
			time.AfterFunc(1, func() { cancel(stopped) })
			return nil
		}, nil)
		if !errors.Is(err, stopped) || errors.Is(err, context.Canceled) || e.ETag != "" || e.Key != (table.Key{}) {
			t.Errorf("got %v, %v; want no entity, and the cause", e, err)
		}
	})
}

// A group may have exactly 4 MiB, and not a byte more.
func TestAGroupOfFourMiB(t *testing.T) {
	group := func(more int) (changes []table.Change) {
		left := 4<<20 + more
		for i := range 5 {
			e := table.Entity{Key: table.Key{Partition: "p", Row: string(rune('a' + i))}, Properties: map[string]any{}}
			for name := 'a'; left > 0 && name < 'a'+13; name++ {
				property := strings.Repeat(string(name), 2)
				with := e.Size() + 8 + 2*len(property) + 4
				if i == 4 && left-with < 64<<10 || left-with <= 0 {
					if left-with > 0 {
						e.Properties[property] = make([]byte, left-with)
					}
					break
				}
				e.Properties[property] = make([]byte, 64<<10)
			}
			left -= e.Size()
			changes = append(changes, table.Inserting(e))
		}
		if left != 0 {
			t.Fatalf("%d bytes are left", left)
		}
		return changes
	}
	if err := table.CheckGroup(group(0)); err != nil {
		t.Errorf("4 MiB: got %v", err)
	}
	if err := table.CheckGroup(group(1)); !errors.Is(err, table.ErrTooLarge) {
		t.Errorf("a byte more: got %v, want ErrTooLarge", err)
	}
}

// What the filter leaves out does not count towards the 4 MiB of a page.
func TestWhatAFilterLeavesOutTakesNoRoomInAPage(t *testing.T) {
	large := func(row string, wanted bool) table.Entity {
		e := table.Entity{Key: table.Key{Partition: "p", Row: row}, Properties: map[string]any{"wanted": wanted}}
		for name := 'a'; name < 'a'+15; name++ {
			e.Properties[string(name)] = make([]byte, 64<<10)
		}
		return e
	}
	q := table.Query{Filter: table.Equal("wanted", true)}
	p, err := q.Collect(iter.Seq2[table.Entity, error](func(yield func(table.Entity, error) bool) {
		for i, row := range strings.Split("abcdefghij", "") {
			if !yield(large(row, i%2 == 0 && i < 8), nil) {
				return
			}
		}
	}))
	if err != nil || len(p.Entities) != 4 || p.Next != "" {
		t.Errorf("got %d entities, the next page at %q, %v; want the 4 that match, less than 4 MiB, and no other page", len(p.Entities), p.Next, err)
	}
}

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
