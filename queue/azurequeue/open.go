package azurequeue

import (
	"cmp"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/queue"
)

// Options configure [Open] and [OpenAccount]. Nil and the zero value mean the defaults.
type Options struct {
	// Credential authorizes requests if the location is an https address without a signature. It
	// is refused with a location that has a key or a signature. The identity needs the role
	// "Storage Queue Data Contributor". Defaults to azidentity's DefaultAzureCredential, which
	// tries the environment, workload identity, managed identity and az login in this order.
	Credential azcore.TokenCredential

	// Transport sends the requests: an [*http.Client], or an in-process transport. Close does not
	// close it. A client without CheckRedirect follows no redirects here, because the service
	// sends none. Defaults to an HTTP client that keeps Connections idle connections. With the
	// pool sizes of Go (2) and the SDK (10) nearly every request of a burst would open a
	// connection.
	Transport policy.Transporter

	// TryTimeout limits one request, including getting a token. A request that the library repeats,
	// such as a delete of unknown outcome, may take twice as long the second time and four times
	// as long from the third on. Defaults to 10 s.
	TryTimeout time.Duration

	// Connections is the number of idle connections that are kept, about as many as there are
	// concurrent calls. It has no effect with a Transport. Defaults to 256.
	Connections int
}

// Queue is a queue of an Azure storage account. It implements [queue.Manager] and is safe for
// concurrent use. Create one with [Open].
type Queue struct {
	name    queue.Name
	bad     error // invalid name, returned by every call; only a sibling can have one
	account *account
	client  *azqueue.QueueClient
}

var _ queue.Manager = (*Queue)(nil)

// account is what a queue shares with its siblings.
type account struct {
	location   azurestorage.Location
	service    *azqueue.ServiceClient
	tryTimeout time.Duration
	own        *http.Client // nil if the caller provided the transport
}

// Open returns the queue with this name at a location. It sends no request: the first call fails
// if the queue does not exist. The location is one of
//
//   - a connection string with an AccountKey or a SharedAccessSignature,
//   - "UseDevelopmentStorage=true", the local emulator's account on port 10001,
//   - "https://ACCOUNT.queue.core.windows.net", with [Options.Credential],
//   - such an address with a shared access signature as its query.
//
// The error is [queue.ErrInvalid]; it does not repeat the location.
func Open(location, name string, o *Options) (*Queue, error) {
	if o == nil {
		o = &Options{}
	}
	at, err := parse(location)
	n := queue.Name{Account: at.Account, Queue: name}
	if err == nil {
		err = check(at, name)
	}
	var a *account
	if err == nil {
		a, err = open(at, *o)
	}
	if err != nil {
		return nil, queue.Explain(err, "open", n, "")
	}
	return a.queue(n), nil
}

func open(at azurestorage.Location, o Options) (_ *account, err error) {
	switch {
	case o.TryTimeout > 0 && o.TryTimeout < time.Microsecond: // probably a number without a unit
		return nil, invalid("", "TryTimeout %v is too short for any request: give it a unit, such as %d*time.Second", o.TryTimeout, o.TryTimeout)
	case o.TryTimeout < 0:
		return nil, invalid("", "TryTimeout %v is negative", o.TryTimeout)
	case o.Connections < 0:
		return nil, invalid("", "Connections %d is negative", o.Connections)
	}
	a := &account{location: at, tryTimeout: cmp.Or(o.TryTimeout, 10*time.Second)}
	a.service, a.own, err = azurestorage.Connect(at, o.Credential, o.Transport, cmp.Or(o.Connections, 256), azurestorage.Constructors[*azqueue.ServiceClient, *azqueue.SharedKeyCredential]{
		Key: azqueue.NewSharedKeyCredential,
		WithKey: func(endpoint string, key *azqueue.SharedKeyCredential, t policy.Transporter) (*azqueue.ServiceClient, error) {
			return azqueue.NewServiceClientWithSharedKeyCredential(endpoint, key, sdkOptions(t))
		},
		WithoutCredential: func(endpoint string, t policy.Transporter) (*azqueue.ServiceClient, error) {
			return azqueue.NewServiceClientWithNoCredential(endpoint, sdkOptions(t))
		},
		WithToken: func(endpoint string, c azcore.TokenCredential, t policy.Transporter) (*azqueue.ServiceClient, error) {
			return azqueue.NewServiceClient(endpoint, c, sdkOptions(t))
		},
	})
	if err != nil {
		f := azurestorage.Unopened(err, queue.ErrUnauthorized, queue.ErrInvalid)
		return nil, &queue.Error{Kind: f.Kind, Detail: f.Detail, Hint: f.Hint, Err: f.Err}
	}
	return a, nil
}

// sdkOptions configure azqueue so that one call is one request.
func sdkOptions(transport policy.Transporter) *azqueue.ClientOptions {
	o := &azqueue.ClientOptions{}
	o.Transport = sendOnce{transport}
	o.Retry.MaxRetries = -1 // not 0, which means 3
	o.Telemetry.Disabled = true
	o.PerCallPolicies = []policy.Policy{decodeMessages{}, hideQuery{}}
	o.PerRetryPolicies = []policy.Policy{restoreQuery{}}
	return o
}

func (a *account) queue(name queue.Name) *Queue {
	return &Queue{name: name, bad: queue.CheckName(name.Queue), account: a, client: a.service.NewQueueClient(name.Queue)}
}

// Name returns the queue's name and its account as the location gives it. It sends no request.
func (q *Queue) Name() queue.Name { return q.name }

// Sibling returns the queue of the same account whose name has the suffix appended. It shares
// client, credential and connections with q and sends no request.
func (q *Queue) Sibling(suffix string) queue.Queue {
	return q.account.queue(queue.Name{Account: q.name.Account, Queue: q.name.Queue + suffix})
}

// Close closes the idle connections of this queue and its siblings. Calls in progress are not
// affected; later calls open new connections. The error is always nil.
func (q *Queue) Close() error { return q.account.close() }

func (a *account) close() error {
	if a.own != nil {
		a.own.CloseIdleConnections()
	}
	return nil
}

func invalid(hint, format string, args ...any) error {
	return &queue.Error{Kind: queue.ErrInvalid, Detail: fmt.Sprintf(format, args...), Hint: hint}
}
