package azureblob

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/internal/blobcheck"
)

// Options configure [Open]. Nil and the zero value mean the defaults.
type Options struct {
	// Credential authorizes requests if the location is an https address without a signature. It
	// is refused with a location that has a key or a signature. The identity needs the role
	// "Storage Blob Data Contributor". Defaults to azidentity's DefaultAzureCredential, which
	// tries the environment, workload identity, managed identity and az login in this order.
	Credential azcore.TokenCredential

	// Transport sends the requests: an [*http.Client], or an in-process transport. Close does not
	// close it. A client without CheckRedirect follows no redirects here, because the service
	// sends none. Defaults to an HTTP client that keeps Connections idle connections.
	//
	// If a server sends unsolicited data, an [http.Transport] logs up to ReadBufferSize bytes of it,
	// by default 4 KiB, which may include the content of blobs. Set ReadBufferSize to 24 in one
	// of your own.
	Transport policy.Transporter

	// TryTimeout limits one request, including getting a token. For an open it limits the wait
	// for the response to begin, and then the wait for each part of it. A block must be
	// uploaded within it. A request that is repeated has twice as long, and then four times.
	// Defaults to 30 s.
	TryTimeout time.Duration

	// RetryFor is how long a request that fails for a while is repeated, since its first try; the
	// try that begins last may still take TryTimeout. Negative means that nothing is repeated.
	// Defaults to 2 min, but with UseDevelopmentStorage=true on this machine to 1 s while nothing
	// listens there.
	RetryFor time.Duration

	// BlockSize is the size of the blocks of an upload in bytes, 1 KiB to 100 MiB, and what a put
	// keeps in memory at most. A blob has at most 50,000 blocks. Uploads are resumed only with the
	// same BlockSize. Defaults to 4 MiB.
	BlockSize int

	// Connections is the number of idle connections that are kept, about as many as there are
	// concurrent calls. It has no effect with a Transport. Defaults to 64.
	Connections int
}

const (
	minBlock  = 1 << 10
	maxBlock  = 100 << 20
	maxBlocks = 50_000
)

// Store is the blobs of an Azure storage account, or of one container of it. It implements
// [blob.Manager] and is safe for concurrent use. Create one with [Open].
type Store struct {
	_ [0]sync.Mutex // go vet reports copies

	location  azurestorage.Location
	service   *service.Client
	limits    azurestorage.Limits
	blockSize int
	maxBlocks int          // of one blob; less in tests
	own       *http.Client // nil if the caller provided the transport
}

var _ blob.Manager = (*Store)(nil)

// Open returns the store at a location. It sends no request. The location is one of
//
//   - a connection string with an AccountKey or a SharedAccessSignature,
//   - "UseDevelopmentStorage=true", Azurite's account on port 10000,
//   - "https://ACCOUNT.blob.core.windows.net", with [Options.Credential],
//   - such an address with a shared access signature as its query,
//
// where an address that goes on with a container's name is a store of that container alone. The
// error is [blob.ErrInvalid]; it does not repeat the location.
func Open(location string, o *Options) (*Store, error) {
	o = cmp.Or(o, &Options{})
	at, err := azurestorage.Blob.Parse(location)
	if wrong := (*azurestorage.ParseError)(nil); errors.As(err, &wrong) {
		return nil, opening(invalid(wrong.Hint, "%s", wrong.Detail))
	}
	if at.Resource != "" && blobcheck.Container(at.Resource) != nil {
		return nil, opening(invalid("leave out what follows the account", "the location has a path that is not a container name"))
	}
	s, err := open(at, *o)
	if err != nil {
		return nil, opening(err)
	}
	return s, nil
}

func open(at azurestorage.Location, o Options) (_ *Store, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := &Store{
		location:  at,
		limits:    o.limits().WithDefaults(at),
		blockSize: o.BlockSize,
		maxBlocks: maxBlocks,
	}
	s.blockSize = cmp.Or(s.blockSize, 4<<20)
	connected, err := azurestorage.Connect(at, o.Credential, o.Transport, s.limits.Connections, azurestorage.Constructors[*service.Client, *service.SharedKeyCredential, *service.ClientOptions]{
		Options: sdkOptions,
		Key:     service.NewSharedKeyCredential,
		WithKey: service.NewClientWithSharedKeyCredential, WithoutCredential: service.NewClientWithNoCredential, WithToken: service.NewClient,
	})
	if err != nil {
		f := azurestorage.Unopened(err, blob.ErrUnauthorized, blob.ErrInvalid)
		return nil, &blob.Error{Kind: f.Kind, Detail: f.Detail, Hint: f.Hint, Err: f.Err}
	}
	s.service, s.own = connected.Client, connected.Own
	return s, nil
}

func (o Options) limits() azurestorage.Limits {
	return azurestorage.Limits{TryTimeout: o.TryTimeout, RetryFor: o.RetryFor, Connections: o.Connections}
}

// validate refuses options that cannot be meant.
func (o Options) validate() error {
	if wrong := (*azurestorage.ParseError)(nil); errors.As(o.limits().Check(), &wrong) {
		return invalid(wrong.Hint, "%s", wrong.Detail)
	}
	if o.BlockSize != 0 && (o.BlockSize < minBlock || o.BlockSize > maxBlock) {
		return invalid("", "BlockSize %d is outside %d…%d", o.BlockSize, minBlock, maxBlock)
	}
	return nil
}

// sdkOptions configure azblob so that one call is one request.
func sdkOptions(transport policy.Transporter) *service.ClientOptions {
	o := &service.ClientOptions{}
	o.Transport = transport
	o.Retry.MaxRetries = -1 // not 0, which means 3
	o.Telemetry.Disabled = true
	o.PerCallPolicies = []policy.Policy{azurestorage.MatchResponse{}}
	return o
}

// Close closes the store's idle connections. Calls in progress are not affected; later calls open
// new connections. The error is always nil.
func (s *Store) Close() error {
	if s.own != nil {
		s.own.CloseIdleConnections()
	}
	return nil
}

func invalid(hint, format string, args ...any) error {
	return &blob.Error{Kind: blob.ErrInvalid, Detail: fmt.Sprintf(format, args...), Hint: hint}
}

// opening says that a store could not be opened.
func opening(err error) error {
	if known := (*blob.Error)(nil); errors.As(err, &known) {
		c := *known
		c.Op = "open the blob store"
		return &c
	}
	return err
}
