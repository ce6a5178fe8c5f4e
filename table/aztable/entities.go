package aztable

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
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

// Apply implements [table.Store] with one entity group transaction. It creates a table that does not exist if a change
// inserts.
func (t *Table) Apply(ctx context.Context, changes []table.Change) ([]table.ETag, error) {
	bad := table.CheckGroup(changes)
	var actions []aztables.TransactionAction
	var group table.Key // of all changes
	if bad == nil {
		actions, bad = newActions(changes)
		group = table.Key{Partition: changes[0].Entity().Partition}
	}
	var etags []table.ETag
	var failed table.Key // of the change that failed; zero if it was not one
	err := t.change(ctx, group, bad, slices.ContainsFunc(changes, table.Change.Inserts), exchange{
		send: func(try context.Context) error {
			_, err := t.client.SubmitTransaction(try, actions, nil)
			failed = refusedKey(err, changes) // that of the try before is not meant
			return err
		},
		statuses: []int{http.StatusAccepted},
		read: func(a *answer) error {
			parts, err := a.parts()
			if err != nil {
				return err
			}
			if at := slices.IndexFunc(parts, part.refused); at >= 0 {
				err := a.refusal(parts[at])
				failed = refusedKey(err, changes)
				if len(changes) == 1 {
					failed = changes[0].Entity().Key
				}
				return err
			}
			etags, err = readETags(parts, changes)
			return err
		},
	})
	if err != nil {
		return nil, table.Explain("apply", t.name, failed, err)
	}
	return etags, nil
}

func newActions(changes []table.Change) ([]aztables.TransactionAction, error) {
	actions := make([]aztables.TransactionAction, len(changes))
	for i, c := range changes {
		e := c.Entity()
		action := aztables.TransactionAction{ActionType: aztables.TransactionTypeAdd}
		if !c.Inserts() {
			match := azcore.ETag(e.ETag)
			action.ActionType, action.IfMatch = aztables.TransactionTypeUpdateReplace, &match
		}
		if c.Deletes() {
			action.ActionType = aztables.TransactionTypeDelete
		}
		var err error
		if action.Entity, err = encode(e); err != nil {
			return nil, err
		}
		actions[i] = action
	}
	return actions, nil
}

// errNoParts means that the response to a group is not one.
var errNoParts = &azurestorage.ForeignError{Lacks: "answer to each change"}

// part is a response within the response to a group: to one change, or to the one that failed.
type part struct {
	status int
	header http.Header
	body   []byte
}

func (p part) refused() bool { return p.status >= http.StatusMultipleChoices }

// parts returns the responses within the response to a group. It is a document of one part, which is a document of these
// parts, by "Performing entity group transactions".
func (a *answer) parts() ([]part, error) {
	outer, err := multipartReader(a.body)
	if err != nil {
		return nil, err
	}
	only, err := outer.NextPart()
	if err != nil {
		return nil, errNoParts
	}
	content, err := io.ReadAll(only)
	if err != nil {
		return nil, errNoParts
	}
	inner, err := multipartReader(content)
	if err != nil {
		return nil, err
	}
	var parts []part
	for {
		next, err := inner.NextPart()
		if errors.Is(err, io.EOF) {
			return parts, nil
		}
		if err != nil {
			return nil, errNoParts
		}
		p, err := readPart(next, a.Request)
		if err != nil {
			return nil, errNoParts
		}
		parts = append(parts, p)
	}
}

// multipartReader reads a document whose boundary is its first line.
func multipartReader(document []byte) (*multipart.Reader, error) {
	line, _, ended := bytes.Cut(document, []byte("\n"))
	boundary, found := bytes.CutPrefix(bytes.TrimRight(line, "\r "), []byte("--"))
	if !ended || !found || len(boundary) == 0 {
		return nil, errNoParts
	}
	return multipart.NewReader(bytes.NewReader(document), string(boundary)), nil
}

func readPart(r io.Reader, request *http.Request) (part, error) {
	resp, err := http.ReadResponse(bufio.NewReader(r), request)
	if err != nil {
		return part{}, err
	}
	defer func() { _ = resp.Body.Close() }() // it is read
	body, err := io.ReadAll(resp.Body)
	return part{resp.StatusCode, resp.Header, body}, err
}

// refusal returns the error of a part as if the service had responded with it alone. The request id is that of the
// whole response.
func (a *answer) refusal(p part) error {
	p.header.Set(azurestorage.RequestIDHeader, a.Header.Get(azurestorage.RequestIDHeader))
	return runtime.NewResponseError(&http.Response{
		StatusCode: p.status, Header: p.header, Body: io.NopCloser(bytes.NewReader(p.body)), Request: a.Request,
	})
}

// refusedKey returns the key of the change that a refusal is about, or the zero key if it does not tell, or err is none.
func refusedKey(err error, changes []table.Change) table.Key {
	resp := (*azcore.ResponseError)(nil)
	if !errors.As(err, &resp) || resp.RawResponse == nil {
		return table.Key{}
	}
	body, err := runtime.Payload(resp.RawResponse) // it is in memory
	if err != nil {
		return table.Key{}
	}
	_, at := azurestorage.Message(body)
	if at < 0 || at >= len(changes) {
		return table.Key{}
	}
	return changes[at].Entity().Key
}

// readETags returns the versions of a group's entities.
func readETags(parts []part, changes []table.Change) ([]table.ETag, error) {
	if len(parts) != len(changes) {
		return nil, errNoParts
	}
	etags := make([]table.ETag, len(parts))
	for i, p := range parts {
		if changes[i].Deletes() {
			continue
		}
		if etags[i] = table.ETag(p.header.Get("ETag")); etags[i] == "" {
			return nil, &azurestorage.ForeignError{Lacks: "ETag of each entity"}
		}
	}
	return etags, nil
}
