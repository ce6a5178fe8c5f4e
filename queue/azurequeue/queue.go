package azurequeue

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/internal/serviceerror"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// Account is an Azure storage account's queues, as [queue.Account] describes them. The queues of an
// account share client, credential and connections. It is safe for concurrent use. Create one with
// [OpenAccount].
//
// Name is the account's name as the location gives it; Name and Open send no request. One List is
// one List Queues. Metadata names are in lower case, as in Properties of a [Queue].
type Account struct {
	_ [0]sync.Mutex // go vet reports copies

	queue.Account
	account *account
}

// OpenAccount returns the account at a location that [Open] accepts. It sends no request. If the
// location is a queue's address, only that queue can be opened. The error is [queue.ErrInvalid]; it
// does not repeat the location.
func OpenAccount(location string, o *Options) (*Account, error) {
	o = cmp.Or(o, &Options{})
	at, err := parse(location)
	var a *account
	if err == nil {
		a, err = open(at, *o)
	}
	if err != nil {
		return nil, driver.Explain(err, "open", queue.Name{Account: at.Account}, "")
	}
	return &Account{Account: a, account: a}, nil
}

// Close closes the idle connections of the account's queues. Calls in progress are not affected;
// later calls open new connections. The error is always nil.
func (a *Account) Close() error { return a.account.close() }

// Name implements [queue.Account].
func (a *account) Name() string { return a.location.Account }

// Open implements [queue.Account].
func (a *account) Open(name string) (queue.Manager, error) {
	n := queue.Name{Account: a.Name(), Queue: name}
	if err := check(a.location, name); err != nil {
		return nil, driver.Explain(err, "open", n, "")
	}
	return a.queue(n), nil
}

const opList = "list"

// List implements [queue.Account] with List Queues.
func (a *account) List(ctx context.Context, prefix, marker string, limit int) (page []queue.Listed, next string, err error) {
	page, next, err = a.list(ctx, prefix, marker, limit)
	if err != nil {
		return nil, "", driver.Explain(err, opList, queue.Name{Account: a.Name()}, "")
	}
	return page, next, nil
}

func (a *account) list(ctx context.Context, prefix, marker string, limit int) (page []queue.Listed, next string, err error) {
	if err := driver.CheckList(limit); err != nil {
		return nil, "", err
	}
	sdk := &azqueue.ListQueuesOptions{MaxResults: new(int32(cmp.Or(limit, driver.MaxPage))), Include: azqueue.ListQueuesInclude{Metadata: true}}
	if prefix != "" {
		sdk.Prefix = &prefix
	}
	if marker != "" {
		sdk.Marker = &marker
	}
	err = a.call(ctx, opList, "", func(ctx context.Context) error {
		var resp *http.Response
		r, err := a.service.NewListQueuesPager(sdk).NextPage(policy.WithCaptureResponse(ctx, &resp)) // one page, one request
		if err != nil {
			return err
		}
		if r.ServiceEndpoint == nil { // a document without an endpoint is not a queue list
			body, _ := runtime.Payload(resp)
			return foreignResponse(resp, body)
		}
		for _, q := range r.Queues {
			if q == nil || value(q.Name) == "" {
				return incompleteResponse(http.StatusOK, r.RequestID, "name of a queue")
			}
			page = append(page, queue.Listed{Name: *q.Name, Metadata: lower(q.Metadata)})
		}
		next = value(r.NextMarker)
		return nil
	})
	return page, next, err
}

func lower(metadata map[string]*string) map[string]string {
	m := make(map[string]string, len(metadata))
	for name, v := range metadata {
		m[strings.ToLower(name)] = value(v)
	}
	return m
}

// Properties implements [queue.Queue] with Get Queue Metadata. Metadata names are in lower case,
// because HTTP headers lose their case.
func (q *handle) Properties(ctx context.Context) (queue.Properties, error) {
	var p queue.Properties
	err := q.call(ctx, "properties", "", "", nil, func(ctx context.Context) error {
		var resp *http.Response
		r, err := q.client.GetProperties(policy.WithCaptureResponse(ctx, &resp), nil)
		if err != nil {
			return err
		}
		if value(r.ApproximateMessagesCount) < 0 || r.ApproximateMessagesCount == nil { // a missing depth is not 0
			if body, err := runtime.Payload(resp); err == nil && len(body) > 0 {
				return foreignResponse(resp, body) // the service sends no body
			}
			return incompleteResponse(http.StatusOK, r.RequestID, "depth and an empty body")
		}
		p = queue.Properties{Depth: *r.ApproximateMessagesCount, Metadata: lower(r.Metadata)}
		return nil
	})
	return p, err
}

// Create implements [queue.Queue] with Create Queue.
func (q *handle) Create(ctx context.Context, metadata map[string]string) error {
	return q.call(ctx, "create", "", "", driver.CheckMetadata(metadata), func(ctx context.Context) error {
		_, err := q.client.Create(ctx, &azqueue.CreateOptions{Metadata: pointers(metadata)})
		return err
	})
}

// SetMetadata implements [queue.Manager] with Set Queue Metadata.
func (q *handle) SetMetadata(ctx context.Context, metadata map[string]string) error {
	return q.call(ctx, "set metadata", "", "", driver.CheckMetadata(metadata), func(ctx context.Context) error {
		_, err := q.client.SetMetadata(ctx, &azqueue.SetMetadataOptions{Metadata: pointers(metadata)})
		return err
	})
}

// Clear implements [queue.Manager] with Clear Messages.
func (q *handle) Clear(ctx context.Context) error {
	return q.call(ctx, "clear", "", "", nil, func(ctx context.Context) error {
		_, err := q.client.ClearMessages(ctx, nil)
		return err
	})
}

// Drop implements [queue.Manager] with Delete Queue.
func (q *handle) Drop(ctx context.Context) error {
	return q.call(ctx, "drop", "", "", nil, func(ctx context.Context) error {
		_, err := q.client.Delete(ctx, nil)
		return err
	})
}

func pointers(metadata map[string]string) map[string]*string {
	m := make(map[string]*string, len(metadata))
	for name, v := range metadata {
		m[name] = &v
	}
	return m
}

// call sends one request unless bad is set. The error is a [*queue.Error].
func (q *handle) call(ctx context.Context, op string, id queue.ID, receipt queue.Receipt, bad error, send func(context.Context) error) error {
	if bad == nil {
		bad = q.bad
	}
	if bad == nil {
		bad = q.account.call(ctx, op, receipt, send)
	}
	if bad != nil {
		return driver.Explain(bad, op, q.name, id)
	}
	return nil
}

// call sends one request with a context limited by the try time-out.
func (a *account) call(ctx context.Context, op string, receipt queue.Receipt, send func(context.Context) error) error {
	if ctx.Err() != nil {
		return &queue.Error{Detail: "nothing was sent", Err: serviceerror.Ended(ctx)}
	}
	try, cancel := context.WithTimeoutCause(ctx, azurestorage.TryTimeout(ctx, a.tryTimeout), azurestorage.ErrTryTimeout)
	defer cancel()
	if err := send(try); err != nil {
		return a.translate(ctx, try, op, receipt, err)
	}
	return nil
}

// Update implements [queue.Queue] with Update Message. It always sends the text: azqueue cannot
// update without one, and an empty text would erase the body.
func (q *handle) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	bad := cmp.Or(driver.CheckUpdate(l, text, visibility), driver.CheckRequest(text, 0), checkID(l.ID))
	var renewed queue.Lease
	err := q.call(ctx, "update", l.ID, l.Receipt, bad, func(ctx context.Context) error {
		r, err := q.client.UpdateMessage(ctx, url.PathEscape(string(l.ID)), string(l.Receipt), text,
			&azqueue.UpdateMessageOptions{VisibilityTimeout: seconds(visibility)})
		if err != nil {
			return err
		}
		id := string(l.ID)
		if renewed = lease(&id, r.PopReceipt, r.TimeNextVisible); renewed.Receipt == "" {
			renewed = queue.Lease{}
			return incompleteResponse(http.StatusNoContent, r.RequestID, "new receipt")
		}
		return nil
	})
	return renewed, err
}

// checkID refuses ids that are not path segments. azqueue joins paths, and queue/messages/.. is
// the queue: deleting that message would delete the queue.
func checkID(id queue.ID) error {
	if id == "." || id == ".." {
		return invalid("", "%q is not a message id", string(id))
	}
	return nil
}

func lease(id, receipt *string, until *time.Time) queue.Lease {
	return queue.Lease{ID: queue.ID(value(id)), Receipt: queue.Receipt(value(receipt)), Until: value(until)}
}

func seconds(d time.Duration) *int32 { return new(int32(driver.Seconds(d))) }

// value returns *p, or the zero value if p is nil. azqueue's fields are pointers, nil if the
// response lacks them.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
