package azurequeue

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/internal/units"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
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
	//
	// If a server sends unsolicited data, an [http.Transport] logs up to ReadBufferSize bytes of it,
	// by default 4 KiB, which may include receipts and texts of messages. Set ReadBufferSize to 24 in one
	// of your own. The transport of package
	// http1 logs nothing.
	Transport policy.Transporter

	// TryTimeout limits one request, including getting a token. A request that the library repeats,
	// such as a delete of unknown outcome, may take twice as long the second time and four times
	// as long from the third on. Defaults to 10 s.
	TryTimeout time.Duration

	// Connections is the number of idle connections that are kept, about as many as there are
	// concurrent calls. It has no effect with a Transport. Defaults to 256.
	Connections int
}

// Queue is a queue of an Azure storage account, as [queue.Manager] describes it. It is safe for
// concurrent use. Create one with [Open].
//
// A call is one request, and Name and Sibling send none. A sibling shares client, credential and
// connections. The name of the account is the one that the location gives. Properties has the names
// of metadata in lower case, because HTTP headers lose their case. Enqueue and Update also fail with
// [queue.ErrTooLarge] if the request exceeds the service's limit once the text is escaped for XML.
type Queue struct {
	_ [0]sync.Mutex // go vet reports copies

	queue.Manager
	account *account
}

// Close closes the idle connections of this queue and its siblings. Calls in progress are not
// affected; later calls open new connections. The error is always nil.
func (q *Queue) Close() error { return q.account.close() }

// EmptyAfter returns 2, because the service does not document that Get Messages returns all visible
// messages. See [driver.EmptyAfter].
func (q *Queue) EmptyAfter() int { return 2 }

// handle implements [queue.Manager].
type handle struct {
	name    queue.Name
	bad     error // invalid name, returned by every call; only a sibling can have one
	account *account
	client  *azqueue.QueueClient

	messages *url.URL // of the queue's messages
}

// account is what a queue shares with its siblings. It implements [queue.Account].
type account struct {
	location   azurestorage.Location
	pipeline   runtime.Pipeline // for what is sent without azqueue
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
	o = cmp.Or(o, &Options{})
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
		return nil, driver.Explain(err, "open", n, "")
	}
	return a.queue(n), nil
}

func open(at azurestorage.Location, o Options) (_ *account, err error) {
	if err := units.Wait("TryTimeout", o.TryTimeout); err != nil {
		return nil, invalid("", "%v", err)
	}
	switch {
	case o.TryTimeout < 0:
		return nil, invalid("", "TryTimeout %v is negative", o.TryTimeout)
	case o.Connections < 0:
		return nil, invalid("", "Connections %d is negative", o.Connections)
	}
	if _, err := url.Parse(at.Endpoint); err != nil {
		return nil, invalid("", "the address of the account is not well-formed")
	}
	a := &account{location: at, tryTimeout: cmp.Or(o.TryTimeout, 10*time.Second)}
	connected, err := azurestorage.Connect(at, o.Credential, o.Transport, cmp.Or(o.Connections, 256), azurestorage.Constructors[*azqueue.ServiceClient, *azqueue.SharedKeyCredential, *azqueue.ClientOptions]{
		Options: sdkOptions,
		Key:     azqueue.NewSharedKeyCredential,
		WithKey: azqueue.NewServiceClientWithSharedKeyCredential, WithoutCredential: azqueue.NewServiceClientWithNoCredential, WithToken: azqueue.NewServiceClient,
	})
	if err != nil {
		f := azurestorage.Unopened(err, queue.ErrUnauthorized, queue.ErrInvalid)
		return nil, &queue.Error{Kind: f.Kind, Detail: f.Detail, Hint: f.Hint, Err: f.Err}
	}
	a.service, a.own = connected.Client, connected.Own
	transport := connected.Transport
	if a.own != nil {
		own := a.own.Transport.(*http.Transport)
		own.DisableCompression = true // the service compresses no messages
		transport = direct{own}
	}
	a.pipeline = pipelineFor(connected.Authorize, transport)
	return a, nil
}

// sdkOptions configure azqueue so that one call is one request.
func sdkOptions(transport policy.Transporter) *azqueue.ClientOptions {
	o := &azqueue.ClientOptions{}
	o.Transport = sendOnce{transport}
	o.Retry.MaxRetries = -1 // not 0, which means 3
	o.Telemetry.Disabled = true
	o.PerRetryPolicies = []policy.Policy{azurestorage.MatchResponse{}}
	return o
}

func (a *account) queue(name queue.Name) *Queue {
	messages, _ := url.Parse(a.location.Endpoint + url.PathEscape(name.Queue) + "/messages") // well-formed: open has parsed the endpoint
	return &Queue{
		Manager: &handle{
			name: name, bad: driver.CheckName(name.Queue), account: a, client: a.service.NewQueueClient(name.Queue),
			messages: messages,
		},
		account: a,
	}
}

// Name implements [queue.Queue].
func (q *handle) Name() queue.Name { return q.name }

// Sibling implements [queue.Queue].
func (q *handle) Sibling(suffix string) queue.Queue {
	return q.account.queue(queue.Name{Account: q.name.Account, Queue: q.name.Queue + suffix})
}

func (a *account) close() error {
	if a.own != nil {
		a.own.CloseIdleConnections()
	}
	return nil
}

func invalid(hint, format string, args ...any) error {
	return &queue.Error{Kind: queue.ErrInvalid, Detail: fmt.Sprintf(format, args...), Hint: hint}
}

// parse parses a location. The error is [queue.ErrInvalid] and never contains the location.
func parse(text string) (azurestorage.Location, error) {
	at, err := azurestorage.Queue.Parse(text)
	if wrong := (*azurestorage.ParseError)(nil); errors.As(err, &wrong) {
		return at, invalid(wrong.Hint, "%s", wrong.Detail)
	}
	return at, err
}

// check refuses a name that the service would refuse, and any other name if the location is a
// queue's address.
func check(at azurestorage.Location, name string) error {
	if at.Resource != "" && at.Resource != name {
		return invalid("leave out what follows the account", "the location has a path that is not the queue name")
	}
	return driver.CheckName(name)
}

// sendOnce keeps net/http from sending a request twice. Its Transport repeats a GET without a
// body if the connection breaks before the response, because a GET changes nothing. But a dequeue
// is a GET, and hides 32 messages.
type sendOnce struct{ next policy.Transporter }

// Do implements [policy.Transporter].
func (t sendOnce) Do(r *http.Request) (*http.Response, error) {
	if r.Body == nil && r.Method == http.MethodGet {
		r = r.WithContext(r.Context()) // a copy: the caller owns the request
		r.Body = noBody{}
	}
	return t.next.Do(r)
}

// direct sends by the transport of our own client. All that the client adds are redirects, cookies, and a time-out, and it
// has none of them.
type direct struct{ transport *http.Transport }

// Do implements [policy.Transporter].
func (d direct) Do(r *http.Request) (*http.Response, error) { return d.transport.RoundTrip(r) }

// noBody is an empty body that is not [http.NoBody], which net/http considers repeatable. It
// sends nothing.
type noBody struct{}

func (noBody) Read([]byte) (int, error) { return 0, io.EOF }
func (noBody) Close() error             { return nil }
