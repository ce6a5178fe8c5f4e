package aztable

import (
	"bufio"
	"bytes"
	"context"
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
			return err
		},
		statuses: []int{http.StatusAccepted},
		read: func(a *answer) error {
			parts, err := a.parts()
			if err != nil {
				return err
			}
			if refused := refusedPart(parts); refused != nil {
				failed = failedKey(refused, changes)
				return runtime.NewResponseError(refused)
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

// parts returns the responses within the response to a group: one for each change, or one for a change that failed. It is
// a document of one part, which is a document of these parts, by "Performing entity group transactions".
func (a *answer) parts() ([]*http.Response, error) {
	outer, err := multipartReader(a.body)
	if err != nil {
		return nil, err
	}
	part, err := outer.NextPart()
	if err != nil {
		return nil, errNoParts
	}
	content, err := io.ReadAll(part)
	if err != nil {
		return nil, errNoParts
	}
	inner, err := multipartReader(content)
	if err != nil {
		return nil, err
	}
	var parts []*http.Response
	for {
		part, err := inner.NextPart()
		if err == io.EOF {
			return parts, nil
		}
		if err != nil {
			return nil, errNoParts
		}
		resp, err := a.partResponse(part)
		if err != nil {
			return nil, errNoParts
		}
		parts = append(parts, resp)
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

// partResponse reads a response within the response to a group, which has one request id for all.
func (a *answer) partResponse(part io.Reader) (*http.Response, error) {
	resp, err := http.ReadResponse(bufio.NewReader(part), a.Request)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // it is read
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.Header.Set(azurestorage.RequestIDHeader, a.Header.Get(azurestorage.RequestIDHeader))
	return resp, nil
}

// refusedPart returns the response to the change that failed, or nil.
func refusedPart(parts []*http.Response) *http.Response {
	at := slices.IndexFunc(parts, func(r *http.Response) bool { return r.StatusCode >= http.StatusMultipleChoices })
	if at < 0 {
		return nil
	}
	return parts[at]
}

// failedKey returns the key of the change that a response is about, or the zero key if it does not tell.
func failedKey(refused *http.Response, changes []table.Change) table.Key {
	body, err := runtime.Payload(refused)
	if err != nil {
		body = nil
	}
	_, at := azurestorage.Message(body)
	if len(changes) == 1 {
		at = 0
	}
	if at < 0 || at >= len(changes) {
		return table.Key{}
	}
	return changes[at].Entity().Key
}

// readETags returns the versions of a group's entities.
func readETags(parts []*http.Response, changes []table.Change) ([]table.ETag, error) {
	if len(parts) != len(changes) {
		return nil, errNoParts
	}
	etags := make([]table.ETag, len(parts))
	for i, part := range parts {
		if changes[i].Deletes() {
			continue
		}
		if etags[i] = table.ETag(part.Header.Get("ETag")); etags[i] == "" {
			return nil, &azurestorage.ForeignError{Lacks: "ETag of each entity"}
		}
	}
	return etags, nil
}
