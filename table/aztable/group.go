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
