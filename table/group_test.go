package table_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/table"
)

func TestChangesAgainstVersions(t *testing.T) {
	e := table.Entity{Key: ann, ETag: "v1"}
	all := table.Entity{Key: ann, ETag: table.Any}
	for _, c := range []struct {
		change  table.Change
		current table.ETag
		want    error
	}{
		{table.Inserting(e), "", nil},
		{table.Inserting(e), "v1", table.ErrExists},
		{table.Inserting(all), "v1", table.ErrExists},
		{table.Updating(e), "v1", nil},
		{table.Updating(e), "v2", table.ErrPreconditionFailed},
		{table.Updating(e), "", table.ErrMissing},
		{table.Updating(all), "v2", nil},
		{table.Updating(all), "", table.ErrMissing},
		{table.Deleting(ann, "v1"), "v1", nil},
		{table.Deleting(ann, "v1"), "v10", table.ErrPreconditionFailed},
		{table.Deleting(ann, "v1"), "", table.ErrMissing},
		{table.Deleting(ann, table.Any), "v2", nil},
		{table.Deleting(ann, table.Any), "", table.ErrMissing},
	} {
		err := c.change.Against(c.current)
		if known := (*table.Error)(nil); !errors.Is(err, c.want) || c.want != nil && (!errors.As(err, &known) || known.Key != ann) {
			t.Errorf("%+v against %q: %v, want %v", c.change, c.current, err, c.want)
		}
	}
}

func TestChangesSayWhatTheyAre(t *testing.T) {
	e := table.Entity{Key: ann, ETag: "v1", Properties: map[string]any{"A": true}}
	for _, c := range []struct {
		change           table.Change
		inserts, deletes bool
		etag             table.ETag
	}{
		{table.Inserting(e), true, false, "v1"},
		{table.Updating(e), false, false, "v1"},
		{table.Deleting(ann, "v2"), false, true, "v2"},
	} {
		if got := c.change.Entity(); c.change.Inserts() != c.inserts || c.change.Deletes() != c.deletes || got.Key != ann || got.ETag != c.etag {
			t.Errorf("%+v", c.change)
		}
		if err := c.change.Check(); err != nil {
			t.Errorf("%+v: %v", c.change, err)
		}
	}
	if err := (table.Change{}).Check(); !errors.Is(err, table.ErrInvalid) {
		t.Errorf("the zero change: %v", err)
	}
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
