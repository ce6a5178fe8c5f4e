package azurequeue

import (
	"context"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/millrace/millrace/queue"
)

// Account is an Azure storage account's queues. It implements [queue.Account] and is safe for
// concurrent use. Create one with [OpenAccount].
type Account struct{ account *account }

var _ queue.Account = (*Account)(nil)

// OpenAccount returns the account at a location that [Open] accepts. It sends no request. If the
// location is a queue's address, [Account.Open] opens only that queue. The error is
// [queue.ErrInvalid]; it does not repeat the location.
func OpenAccount(location string, o *Options) (*Account, error) {
	if o == nil {
		o = &Options{}
	}
	at, err := parse(location)
	var a *account
	if err == nil {
		a, err = open(at, *o)
	}
	if err != nil {
		return nil, queue.Explain(err, "open", queue.Name{Account: at.Account}, "")
	}
	return &Account{a}, nil
}

// Name returns the account's name as the location gives it. It sends no request.
func (a *Account) Name() string { return a.account.location.Account }

// Open implements [queue.Account]. The queues of an account share client, credential and
// connections.
func (a *Account) Open(name string) (queue.Manager, error) {
	n := queue.Name{Account: a.Name(), Queue: name}
	if err := check(a.account.location, name); err != nil {
		return nil, queue.Explain(err, "open", n, "")
	}
	return a.account.queue(n), nil
}

const opList = "list"

// List implements [queue.Account] with List Queues. Metadata names are in lower case, as in
// [Queue.Properties].
func (a *Account) List(ctx context.Context, o *queue.ListOptions) (queue.Page, error) {
	page, err := a.list(ctx, o)
	if err != nil {
		return queue.Page{}, queue.Explain(err, opList, queue.Name{Account: a.Name()}, "")
	}
	return page, nil
}

func (a *Account) list(ctx context.Context, o *queue.ListOptions) (queue.Page, error) {
	if err := queue.CheckList(o); err != nil {
		return queue.Page{}, err
	}
	sdk := &azqueue.ListQueuesOptions{MaxResults: to.Ptr(int32(o.Size())), Include: azqueue.ListQueuesInclude{Metadata: true}}
	if o != nil && o.Prefix != "" {
		sdk.Prefix = &o.Prefix
	}
	if o != nil && o.Marker != "" {
		sdk.Marker = &o.Marker
	}
	var page queue.Page
	err := a.account.call(ctx, opList, "", func(ctx context.Context) error {
		var resp *http.Response
		r, err := a.account.service.NewListQueuesPager(sdk).NextPage(policy.WithCaptureResponse(ctx, &resp)) // one page, one request
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
			page.Queues = append(page.Queues, queue.Listed{Name: *q.Name, Metadata: lower(q.Metadata)})
		}
		page.Next = value(r.NextMarker)
		return nil
	})
	return page, err
}

func lower(metadata map[string]*string) map[string]string {
	m := make(map[string]string, len(metadata))
	for name, v := range metadata {
		m[strings.ToLower(name)] = value(v)
	}
	return m
}

// Close closes the idle connections of the account's queues. Calls in progress are not affected;
// later calls open new connections. The error is always nil.
func (a *Account) Close() error { return a.account.close() }
