package aztable

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/table"
)

// Options configure [Open]. Nil and the zero value mean the defaults.
type Options struct {
	// Credential authorizes requests if the location is an https address without a signature. It
	// is refused with a location that has a key or a signature. The identity needs the role
	// "Storage Table Data Contributor". Defaults to azidentity's DefaultAzureCredential, which
	// tries the environment, workload identity, managed identity and az login in this order.
	Credential azcore.TokenCredential

	// Transport sends the requests: an [*http.Client], or an in-process transport. Close does not
	// close it. A client without CheckRedirect follows no redirects here, because the service
	// sends none. Defaults to an HTTP client that keeps Connections idle connections.
	//
	// If a server sends unsolicited data, an [http.Transport] logs up to ReadBufferSize bytes of it,
	// by default 4 KiB, which may include the content of entities. Set ReadBufferSize to 24 in one
	// of your own.
	Transport policy.Transporter

	// TryTimeout limits one request with its response, including getting a token. A request that is repeated has
	// twice as long, and then four times. Defaults to 30 s.
	TryTimeout time.Duration

	// RetryFor is how long a request that fails for a while is repeated, since its first try, if it reads or is
	// known not to have been carried out; the try that begins last may still take TryTimeout. Negative means that
	// nothing is repeated. Defaults to 2 min, but with UseDevelopmentStorage=true on this machine to 1 s while nothing
	// listens there.
	RetryFor time.Duration

	// Connections is the number of idle connections that are kept, about as many as there are
	// concurrent calls. It has no effect with a Transport. Defaults to 64.
	Connections int
}

// Table is a table of an Azure storage account. It implements [table.Store] and is safe for concurrent use. Create one
// with [Open].
type Table struct {
	_ [0]sync.Mutex // go vet reports copies

	name     string
	location azurestorage.Location
	client   *aztables.Client
	limits   azurestorage.Limits
	own      *http.Client // nil if the caller provided the transport
}

var _ table.Store = (*Table)(nil)

// tableName is what the service accepts, by "Understanding the Table service data model".
var tableName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{2,62}$`)

// Open returns the table with a name at a location. It sends no request: the first insertion creates a table that does
// not exist. The location is one of
//
//   - a connection string with an AccountKey or a SharedAccessSignature,
//   - "UseDevelopmentStorage=true", Azurite's account on port 10002,
//   - "https://ACCOUNT.table.core.windows.net", with [Options.Credential],
//   - such an address with a shared access signature as its query,
//
// where an address may go on with the table's name. The name has 3 to 63 letters and digits and begins with a letter;
// upper and lower case are the same to the service. The error is a [*table.Error], [table.ErrInvalid] in most cases; it
// does not repeat the location.
func Open(location, name string, o *Options) (*Table, error) {
	o = cmp.Or(o, &Options{})
	t, err := open(location, name, *o)
	if err != nil {
		return nil, table.Explain("open the table", "", table.Key{}, err)
	}
	return t, nil
}

func open(location, name string, o Options) (*Table, error) {
	if !tableName.MatchString(name) || strings.EqualFold(name, "tables") {
		return nil, invalid("use 3 to 63 letters and digits, a letter first", "%.100q is no name of a table", name)
	}
	at, err := azurestorage.Table.Parse(location)
	if wrong := (*azurestorage.ParseError)(nil); errors.As(err, &wrong) {
		return nil, invalid(wrong.Hint, "%s", wrong.Detail)
	}
	switch {
	case at.Resource != "" && !strings.EqualFold(at.Resource, name):
		return nil, invalid("leave out what follows the account", "the location is that of another table than %s", name)
	case strings.Contains(at.Endpoint, ".cosmos"):
		return nil, invalid("use the table service of a storage account", "the location is of Azure Cosmos DB")
	}
	if wrong := (*azurestorage.ParseError)(nil); errors.As(o.limits().Check(), &wrong) {
		return nil, invalid(wrong.Hint, "%s", wrong.Detail)
	}
	t := &Table{name: name, location: at, limits: o.limits().WithDefaults(at)}
	connected, err := azurestorage.Connect(at, o.Credential, o.Transport, t.limits.Connections, azurestorage.Constructors[*aztables.ServiceClient, *aztables.SharedKeyCredential, *aztables.ClientOptions]{
		Options: sdkOptions,
		Key:     aztables.NewSharedKeyCredential,
		WithKey: aztables.NewServiceClientWithSharedKey, WithoutCredential: aztables.NewServiceClientWithNoCredential, WithToken: aztables.NewServiceClient,
	})
	if err != nil {
		f := azurestorage.Unopened(err, table.ErrUnauthorized, table.ErrInvalid)
		return nil, &table.Error{Kind: f.Kind, Detail: f.Detail, Hint: f.Hint, Err: f.Err}
	}
	t.client, t.own = connected.Client.NewClient(name), connected.Own
	return t, nil
}

func (o Options) limits() azurestorage.Limits {
	return azurestorage.Limits{TryTimeout: o.TryTimeout, RetryFor: o.RetryFor, Connections: o.Connections}
}

// sdkOptions configure aztables so that one call is one request, whose response reaches us as it came.
func sdkOptions(transport policy.Transporter) *aztables.ClientOptions {
	o := &aztables.ClientOptions{}
	o.Transport = transport
	o.Retry.MaxRetries = -1 // not 0, which means 3
	o.Telemetry.Disabled = true
	o.PerCallPolicies = []policy.Policy{wire{}, azurestorage.MatchResponse{}}
	return o
}

// Close closes the table's idle connections. Calls in progress are not affected; later calls open
// new connections. The error is always nil.
func (t *Table) Close() error {
	if t.own != nil {
		t.own.CloseIdleConnections()
	}
	return nil
}

func invalid(hint, format string, args ...any) error {
	return &table.Error{Kind: table.ErrInvalid, Detail: fmt.Sprintf(format, args...), Hint: hint}
}
