package internal_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/killtest"
	"github.com/millrace/millrace/table"
)

var letter = table.Key{Partition: "letters", Row: "a"}

// changeOnce makes one change of each kind, and reads, until a call fails.
func changeOnce(ctx context.Context, t *killtest.Table) error {
	etag, err := t.Insert(ctx, table.Entity{Key: letter})
	if err != nil {
		return err
	}
	if etag, err = t.Update(ctx, table.Entity{Key: letter, ETag: etag}); err != nil {
		return err
	}
	if err := t.Delete(ctx, letter, etag); err != nil {
		return err
	}
	if _, err := t.Apply(ctx, []table.Change{table.Inserting(table.Entity{Key: letter})}); err != nil {
		return err
	}
	if _, err := t.Get(ctx, letter); err != nil {
		return err
	}
	_, err = t.Query(ctx, table.Query{})
	return err
}

// TestTableDiesAtEachChange: the change is made if the process is killed after it, and nothing happens later.
func TestTableDiesAtEachChange(t *testing.T) {
	exists := map[string]map[bool]bool{ // by the kind of the step, and by whether it takes effect
		"insert": {false: false, true: true},
		"update": {false: true, true: true},
		"delete": {false: true, true: false},
		"apply":  {false: false, true: true},
	}
	never := killtest.Every([]string{"insert", "update", "delete", "apply", "read"}, func(k *killtest.Killer) bool {
		s := table.Memory("letters")
		dying := &killtest.Table{Store: s, Killer: k}
		err := changeOnce(t.Context(), dying)
		if !k.Dead() {
			if err != nil {
				t.Errorf("a process that lives: %v", err)
			}
			return false
		}
		if !errors.Is(err, killtest.ErrKilled) {
			t.Errorf("killed at %s: %v", k.Kind, err)
		}
		before, found := s.Get(t.Context(), letter)
		if want := exists[k.Kind][k.After]; want != (found == nil) {
			t.Errorf("killed at %s (after: %v), the entity exists: %v", k.Kind, k.After, !want)
		}
		mustBeDead(t, dying)
		if after, _ := s.Get(t.Context(), letter); after.ETag != before.ETag {
			t.Errorf("killed at %s, the process changed the entity from %q to %q", k.Kind, before.ETag, after.ETag)
		}
		return true
	})
	if !slices.Equal(never, []string{"read", "read"}) {
		t.Errorf("never killed at %v", never)
	}
}

// mustBeDead calls everything.
func mustBeDead(t *testing.T, d *killtest.Table) {
	t.Helper()
	_, insert := d.Insert(t.Context(), table.Entity{Key: letter})
	_, update := d.Update(t.Context(), table.Entity{Key: letter, ETag: table.Any})
	_, apply := d.Apply(t.Context(), []table.Change{table.Deleting(letter, table.Any)})
	_, get := d.Get(t.Context(), letter)
	_, query := d.Query(t.Context(), table.Query{})
	for _, err := range []error{insert, update, d.Delete(t.Context(), letter, table.Any), apply, get, query} {
		if !errors.Is(err, killtest.ErrKilled) {
			t.Errorf("after its end, a call of the process has the error %v", err)
		}
	}
}

// TestAChangeHasNoAnswerAfterDeath: what the change returned does not reach a process that was killed.
func TestAChangeHasNoAnswerAfterDeath(t *testing.T) {
	d := &killtest.Table{Store: table.Memory("letters"), Killer: &killtest.Killer{Kind: "insert", Nth: 1, After: true}}
	if etag, err := d.Insert(t.Context(), table.Entity{Key: letter}); etag != "" || !errors.Is(err, killtest.ErrKilled) {
		t.Errorf("got %q, %v", etag, err)
	}
}
