package killtest

import (
	"context"

	"github.com/millrace/millrace/table"
)

// Table is a table of a process that is killed. Its changes are steps named "insert", "update", "delete" and
// "apply". They have no answer if the process was killed meanwhile.
type Table struct {
	table.Store
	Killer *Killer
}

// Get is no step: it changes nothing.
func (t *Table) Get(ctx context.Context, k table.Key) (table.Entity, error) {
	if t.Killer.Dead() {
		return table.Entity{}, ErrKilled
	}
	return t.Store.Get(ctx, k)
}

// Query is no step: it changes nothing.
func (t *Table) Query(ctx context.Context, q table.Query) (table.Page, error) {
	if t.Killer.Dead() {
		return table.Page{}, ErrKilled
	}
	return t.Store.Query(ctx, q)
}

// Insert is a step.
func (t *Table) Insert(ctx context.Context, e table.Entity) (table.ETag, error) {
	return step(t.Killer, "insert", func() (table.ETag, error) { return t.Store.Insert(ctx, e) })
}

// Update is a step.
func (t *Table) Update(ctx context.Context, e table.Entity) (table.ETag, error) {
	return step(t.Killer, "update", func() (table.ETag, error) { return t.Store.Update(ctx, e) })
}

// Delete is a step.
func (t *Table) Delete(ctx context.Context, k table.Key, etag table.ETag) error {
	return t.Killer.Step("delete", func() error { return t.Store.Delete(ctx, k, etag) })
}

// Apply is a step.
func (t *Table) Apply(ctx context.Context, changes []table.Change) ([]table.ETag, error) {
	return step(t.Killer, "apply", func() ([]table.ETag, error) { return t.Store.Apply(ctx, changes) })
}

func step[T any](k *Killer, kind string, act func() (T, error)) (T, error) {
	var result T
	err := k.Step(kind, func() (err error) { result, err = act(); return err })
	if err != nil {
		var none T
		return none, err
	}
	return result, nil
}
