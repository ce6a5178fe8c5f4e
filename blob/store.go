package blob

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"maps"
	"time"

	"github.com/millrace/millrace/internal/blobcheck"
	"github.com/millrace/millrace/internal/serviceerror"
)

// Store keeps blobs. The package comment describes the guarantees of every store.
//
// A bad reference and bad metadata fail with [ErrInvalid] before anything happens, and before data
// is read. Errors are an [*Error] on one line.
type Store interface {
	// Put stores the content of r, up to its end, and replaces a blob that exists, with its
	// metadata. If r fails, Put fails with the same error and changes nothing. Nil options mean
	// the defaults.
	Put(ctx context.Context, ref Ref, r io.Reader, o *PutOptions) error

	// Create is Put for a blob that does not exist; otherwise it fails with [ErrExists],
	// before or after reading r.
	Create(ctx context.Context, ref Ref, r io.Reader, o *PutOptions) error

	// Open opens a blob for reading. The caller closes the Reader. The context holds for the
	// Reader too. The error is [ErrMissing] if the blob does not exist.
	Open(ctx context.Context, ref Ref) (*Reader, error)

	// Stat returns what Open would tell about a blob, without the content, and Info.Now, or
	// [ErrMissing].
	Stat(ctx context.Context, ref Ref) (Info, error)

	// Delete deletes a blob. It does nothing if the blob does not exist, so that it can be
	// repeated.
	Delete(ctx context.Context, ref Ref) error

	// List yields the blobs of a container whose names begin with the prefix, in the byte
	// order of their names, with Info.Now. Blobs that are put or deleted meanwhile may or may
	// not be among them. A container without blobs is empty, never missing. An error is yielded
	// last, with a zero Info. If the context ends, List yields no further blob.
	List(ctx context.Context, container, prefix string) iter.Seq2[Info, error]
}

// Manager is a Store whose containers can be made public.
type Manager interface {
	Store

	// Public reports whether everybody may read the blobs of a container whose names they know,
	// without authorization. A container that does not exist is private, as a new one is.
	Public(ctx context.Context, container string) (bool, error)

	// SetPublic makes a container public or private, and creates the container if it does not
	// exist. Even if it is public, only the owner may write or list it.
	//
	// It is for a store that others can reach over the network, as Azure Blob Storage can be.
	// [Memory] and [Open] keep the setting, so that a program can set it wherever it runs; but
	// nobody reaches the blobs of a process, and the permissions of a directory's files decide who
	// reads those.
	SetPublic(ctx context.Context, container string, public bool) error
}

// PutOptions configure [Store.Put] and [Store.Create]. Nil and the zero value mean the defaults.
type PutOptions struct {
	// Metadata are stored with the blob and appear with it. Names are lower-case letters, digits
	// and underscores, begin with a letter and not with "millrace_". Values are printable ASCII,
	// not empty, without surrounding spaces. Names and values have at most 8,000 bytes together.
	// The store keeps a copy. Defaults to none.
	Metadata map[string]string
}

// metadata returns the metadata of options that may be nil.
func (o *PutOptions) metadata() map[string]string {
	if o == nil {
		return nil
	}
	return o.Metadata
}

// Info describes a stored blob.
type Info struct {
	Ref      Ref
	Size     int64             // of the content, in bytes
	Modified time.Time         // when the blob was put, by the store's clock; some stores keep whole seconds
	Now      time.Time         // of the same clock, when Stat or List described the blob; zero if unknown
	Metadata map[string]string // nil if it has none; the receiver may change it
}

// Age returns how long ago the blob was put, by the store's clock alone, because this machine's may
// be wrong. If the store keeps whole seconds, the age is up to a second off. Age fails if Now is
// unknown, so that nothing is taken for old.
func (i Info) Age() (time.Duration, error) {
	if i.Now.IsZero() {
		return 0, &Error{
			Op: "tell the age of", Ref: i.Ref, Detail: "the store did not say its time",
			Hint: "a directory must be writable, and a proxy must pass on the Date header",
		}
	}
	return max(i.Now.Sub(i.Modified), 0), nil
}

// Reader reads one blob from its beginning. It can be closed before the end, and then a Read fails
// with an error other than [io.EOF]. It is not safe for concurrent use.
type Reader struct {
	io.ReadCloser
	Info
}

// Exists reports whether the blob exists.
func Exists(ctx context.Context, s Store, ref Ref) (bool, error) {
	_, err := s.Stat(ctx, ref)
	if errors.Is(err, ErrMissing) {
		return false, nil
	}
	return err == nil, err
}

// ready returns the error for which a call must not begin: that of its arguments, or that of an
// ended context.
func ready(ctx context.Context, argErr error) error {
	return cmp.Or(argErr, serviceerror.Ended(ctx))
}

func readyToPut(ctx context.Context, ref Ref, o *PutOptions) error {
	bad := cmp.Or(ref.check(), blobcheck.Metadata(o.metadata()))
	return ready(ctx, bad)
}

// source reads from r until the context ends, and keeps the error. It cannot interrupt a Read that
// blocks.
type source struct {
	ctx context.Context
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (n int, err error) {
	if s.err = serviceerror.Ended(s.ctx); s.err != nil {
		return 0, s.err
	}
	n, err = s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// readyForContainer returns why a call with a container's setting must not begin.
func readyForContainer(ctx context.Context, container string) error {
	return ready(ctx, blobcheck.Container(container))
}

// cloneMetadata returns a copy; that of no metadata is nil.
func cloneMetadata(metadata map[string]string) map[string]string {
	if len(metadata) == 0 {
		return nil
	}
	return maps.Clone(metadata)
}

// Errors of every store. Match them with [errors.Is]; [errors.As] finds the [*Error] that
// carries one.
var (
	// ErrMissing means that the blob does not exist.
	ErrMissing = errors.New("blob does not exist")

	// ErrExists means that the blob exists already.
	ErrExists = errors.New("blob already exists")

	// ErrChanged means that the blob was replaced or deleted while it was read. Open it again.
	ErrChanged = errors.New("blob was replaced or deleted while it was read")

	// ErrUnavailable means that the store was busy or failing, or did not respond. The same call
	// may succeed later; a change may have taken effect.
	ErrUnavailable = errors.New("store unavailable")

	// ErrUnauthorized means that authentication or authorization failed. Waiting does not help.
	ErrUnauthorized = errors.New("unauthorized")

	// ErrInvalid means that arguments are invalid, such as a text or a [Ref] that is not a
	// reference, or that the store refused them.
	ErrInvalid = blobcheck.ErrInvalid
)

// Transient reports whether the same call may succeed later. A change may have taken effect.
func Transient(err error) bool { return errors.Is(err, ErrUnavailable) }

// Error is a failed operation: what was attempted, on which blob, what the store said, and what
// to do. It contains no key and no signature.
type Error struct {
	Op  string // operation, such as "put"
	Ref Ref    // blob of the operation; of a list or a container, Name is the prefix or ""

	Kind error // a sentinel of this package; nil if none fits, or Err is one

	Status    int    // HTTP status; 0 if there was no response
	Code      string // storage error code, such as "BlobNotFound"; "" if none
	RequestID string // the service's x-ms-request-id; "" if none

	Detail string // what is wrong, for people
	Hint   string // what to do about it; "" if there is nothing to say
	Err    error  // underlying error without secrets; nil if none
}

// Error returns all of it on one line.
func (e *Error) Error() string {
	subject := e.Op
	if e.Op != "" && e.Ref != (Ref{}) {
		subject += " " + e.Ref.String()
	}
	return e.failure().Text(subject)
}

// Unwrap returns the kind and the underlying error, for [errors.Is] and [errors.As].
func (e *Error) Unwrap() []error { return e.failure().Unwrap() }

func (e *Error) failure() serviceerror.Failure {
	return serviceerror.Failure{
		Kind: e.Kind, Status: e.Status, Code: e.Code, RequestID: e.RequestID, Detail: e.Detail, Hint: e.Hint, Err: e.Err,
	}
}

// failure adds what was attempted on which blob; nil stays nil.
func failure(op string, ref Ref, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Ref: ref, Err: err}
}
