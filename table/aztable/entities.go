package aztable

import (
	"context"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/table"
)

// Insert implements [table.Store] with Insert Entity. It creates a table that does not exist.
func (t *Table) Insert(ctx context.Context, e table.Entity) (table.ETag, error) {
	var etag table.ETag
	document, bad := encodeChange(table.Inserting(e))
	err := t.change(ctx, e.Key, bad, true, exchange{
		send: func(try context.Context) error {
			_, err := t.client.AddEntity(try, document, nil)
			return err
		},
		statuses: []int{http.StatusCreated, http.StatusNoContent},
		read:     readETag(&etag),
	})
	return etag, table.Explain("insert", t.name, e.Key, err)
}

// Update implements [table.Store] with Update Entity.
func (t *Table) Update(ctx context.Context, e table.Entity) (table.ETag, error) {
	var etag table.ETag
	document, bad := encodeChange(table.Updating(e))
	match := azcore.ETag(e.ETag)
	err := t.change(ctx, e.Key, bad, false, exchange{
		send: func(try context.Context) error {
			_, err := t.client.UpdateEntity(try, document, &aztables.UpdateEntityOptions{IfMatch: &match, UpdateMode: aztables.UpdateModeReplace})
			return err
		},
		statuses: []int{http.StatusNoContent},
		read:     readETag(&etag),
	})
	return etag, table.Explain("update", t.name, e.Key, err)
}

// Delete implements [table.Store] with Delete Entity.
func (t *Table) Delete(ctx context.Context, k table.Key, etag table.ETag) error {
	match := azcore.ETag(etag)
	err := t.change(ctx, k, table.Deleting(k, etag).Check(), false, exchange{
		send: func(try context.Context) error {
			_, err := t.client.DeleteEntity(try, k.Partition, k.Row, &aztables.DeleteEntityOptions{IfMatch: &match})
			return err
		},
		statuses: []int{http.StatusNoContent},
	})
	return table.Explain("delete", t.name, k, err)
}

// Get implements [table.Store] with a query for one entity, Query Entities with its key.
func (t *Table) Get(ctx context.Context, k table.Key) (table.Entity, error) {
	var e table.Entity
	err := t.read(ctx, k, k.Check(), exchange{
		send: func(try context.Context) error {
			_, err := t.client.GetEntity(try, k.Partition, k.Row, nil)
			return err
		},
		statuses: []int{http.StatusOK},
		read: func(a *answer) (err error) {
			var document map[string]any
			if err := a.decode(&document); err != nil {
				return err
			}
			if e, err = newEntity(document); err == nil && e.Key != k {
				err = &azurestorage.ForeignError{Lacks: "entity that was asked for"}
			}
			return err
		},
	})
	if err != nil {
		return table.Entity{}, table.Explain("get", t.name, k, err)
	}
	return e, nil
}

// encodeChange returns what a change stores, or what is wrong with it.
func encodeChange(c table.Change) ([]byte, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	return encode(c.Entity())
}

// readETag reads the version of an entity from the response to a change.
func readETag(into *table.ETag) func(*answer) error {
	return func(a *answer) error {
		if *into = table.ETag(a.Header.Get("ETag")); *into == "" {
			return &azurestorage.ForeignError{Lacks: "ETag"}
		}
		return nil
	}
}
