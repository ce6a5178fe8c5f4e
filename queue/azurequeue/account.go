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

// Account is the queues of an Azure storage account: a [queue.Account]. It is safe for
// concurrent use. Make one with [OpenAccount].
type Account struct{ account *account }

var _ queue.Account = (*Account)(nil)

// OpenAccount returns the account at a location, which is one that [Open] takes. It sends
// nothing. When the location is the address of a queue, that is the only one that
// [Account.Open] opens. The error is [queue.ErrInvalid] and says what is wrong without
// repeating the location.
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
		return nil, queue.Explain(err, "open", queue.Name{Account: at.account}, "")
	}
	return &Account{a}, nil
}

// Name is the account's name, as the location gives it. It sends nothing.
func (a *Account) Name() string { return a.account.location.account }

// Open implements [queue.Account]. The queues of an account share client, credential and
// connections.
func (a *Account) Open(name string) (queue.Manager, error) {
	n := queue.Name{Account: a.Name(), Queue: name}
	if err := a.account.location.check(name); err != nil {
		return nil, queue.Explain(err, "open", n, "")
	}
	return a.account.queue(n), nil
}

const opList = "list"

// List implements [queue.Account] with List Queues. Names of metadata come in lower case,
// as from [Queue.Properties].
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
		var answer *http.Response
		r, err := a.account.service.NewListQueuesPager(sdk).NextPage(policy.WithCaptureResponse(ctx, &answer)) // one page is one request
		if err != nil {
			return err
		}
		if r.ServiceEndpoint == nil { // every list says whose it is; a document that is none is no empty list
			body, _ := runtime.Payload(answer)
			return foreignResponse(answer, body)
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

// lower is metadata with names in lower case.
func lower(metadata map[string]*string) map[string]string {
	m := make(map[string]string, len(metadata))
	for name, v := range metadata {
		m[strings.ToLower(name)] = value(v)
	}
	return m
}

// Close closes the idle connections of the account's queues. Calls under way end as they
// would, and a later call opens a new connection. The error is always nil.
func (a *Account) Close() error { return a.account.close() }
