package table_test

import (
	"errors"
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
