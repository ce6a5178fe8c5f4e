package azurequeue

import (
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/millrace/millrace/queue"
)

// Options of [Open]. Nil and the zero value mean the defaults.
type Options struct {
	// Credential proves who we are when the location is a bare https address;
	// with a location that carries a key or a signature it is refused. The
	// identity needs the role "Storage Queue Data Contributor". Defaults to
	// azidentity's DefaultAzureCredential: environment, workload identity,
	// managed identity, az login, in this order.
	Credential azcore.TokenCredential

	// Transport sends the requests: an [*http.Client], or something in
	// process. Close does not touch it. A client without a CheckRedirect follows no
	// redirect for us: the service sends none. Defaults to an HTTP client of our own
	// that keeps Connections idle connections, since Go's own default pool of
	// 2, and the SDK's of 10, open a new one for nearly every request of a
	// burst.
	Transport policy.Transporter

	// TryTimeout is how long one request may take, getting a token included.
	// Defaults to 10 s.
	TryTimeout time.Duration

	// Connections is how many idle connections are kept for the next burst:
	// about as many as calls run at once. It has no effect with a Transport.
	// Defaults to 256.
	Connections int
}

// Queue is one queue of an Azure storage account: a [queue.Manager]. It is safe
// for concurrent use. Make one with [Open].
type Queue struct {
	name    queue.Name
	bad     error // of the name; returned by every call. Only a sibling has one
	account *account
	client  *azqueue.QueueClient
}

var _ queue.Manager = (*Queue)(nil)

// account is what a queue shares with its siblings.
type account struct {
	location   location
	service    *azqueue.ServiceClient
	tryTimeout time.Duration
	own        *http.Client // nil when the transport is the caller's
}

// Open returns the queue of this name at a location. It sends nothing: a queue
// that does not exist is noticed at the first call. The location is one of
//
//   - a connection string with an AccountKey or a SharedAccessSignature,
//   - "UseDevelopmentStorage=true", the local emulator's account on port 10001,
//   - "https://ACCOUNT.queue.core.windows.net", with [Options.Credential],
//   - such an address with a shared access signature as its query.
//
// The error is [queue.ErrInvalid] and says what is wrong without repeating the
// location.
func Open(location, name string, o *Options) (*Queue, error) {
	if o == nil {
		o = &Options{}
	}
	at, err := parse(location)
	n := queue.Name{Account: at.account, Queue: name}
	if err == nil {
		err = at.check(name)
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

func open(at location, o Options) (_ *account, err error) {
	switch {
	case o.TryTimeout > 0 && o.TryTimeout < time.Microsecond: // a number without its unit, which compiles
		return nil, invalid("", "TryTimeout %v is too short for any request: give it a unit, such as %d*time.Second", o.TryTimeout, o.TryTimeout)
	case o.TryTimeout < 0:
		return nil, invalid("", "TryTimeout %v is negative", o.TryTimeout)
	case o.Connections < 0:
		return nil, invalid("", "Connections %d is negative", o.Connections)
	case o.Credential != nil && at.auth != tokenAuth:
		return nil, invalid("leave one of them out", "there is a Credential, and the location carries a %s too", at.auth)
	}
	a := &account{location: at, tryTimeout: o.TryTimeout}
	if a.tryTimeout == 0 {
		a.tryTimeout = 10 * time.Second
	}
	transport := o.Transport
	if transport == nil {
		if o.Connections == 0 {
			o.Connections = 256
		}
		a.own = newClient(o.Connections)
		transport = a.own
	}
	sdk := sdkOptions(transport)
	sdk.PerCallPolicies = []policy.Policy{decodeMessages{}, hideQuery{}}
	sdk.PerRetryPolicies = []policy.Policy{restoreQuery{}}
	switch at.auth {
	case keyAuth:
		var c *azqueue.SharedKeyCredential
		if c, err = azqueue.NewSharedKeyCredential(at.account, at.key); err == nil {
			a.service, err = azqueue.NewServiceClientWithSharedKeyCredential(at.endpoint, c, sdk)
		}
	case sasAuth:
		a.service, err = azqueue.NewServiceClientWithNoCredential(at.endpoint+"?"+at.signature, sdk)
	default:
		c := o.Credential
		if c == nil {
			if c, err = azidentity.NewDefaultAzureCredential(nil); err != nil {
				return nil, &queue.Error{Kind: queue.ErrUnauthorized, Err: a.redactError(err), Hint: loginHint}
			}
		}
		a.service, err = azqueue.NewServiceClient(at.endpoint, markedCredential{c}, sdk)
	}
	if err != nil {
		return nil, &queue.Error{Kind: queue.ErrInvalid, Err: a.redactError(err)}
	}
	return a, nil
}

// sdkOptions are those of azqueue that concern the wire: one call is one request.
func sdkOptions(transport policy.Transporter) *azqueue.ClientOptions {
	o := &azqueue.ClientOptions{}
	o.Transport = sendOnce{withoutRedirects(transport)}
	o.Retry.MaxRetries = -1 // not 0, which means 3
	o.Telemetry.Disabled = true
	return o
}

func (a *account) queue(name queue.Name) *Queue {
	return &Queue{name: name, bad: queue.CheckName(name.Queue), account: a, client: a.service.NewQueueClient(name.Queue)}
}

// Name is the queue's name and its account, as the location gives it. It sends
// nothing.
func (q *Queue) Name() queue.Name { return q.name }

// Sibling returns the queue of the same account with the suffix appended to
// its name. It shares client, credential and connections with q; it sends
// nothing.
func (q *Queue) Sibling(suffix string) queue.Queue {
	return q.account.queue(queue.Name{Account: q.name.Account, Queue: q.name.Queue + suffix})
}

// Close closes the idle connections of this queue and of its siblings. Calls
// under way end as they would, and a later call opens a new connection. The
// error is always nil.
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
