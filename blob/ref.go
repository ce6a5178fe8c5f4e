package blob

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/internal/blobcheck"
)

// scheme begins the URI of a reference.
const scheme = "blob://"

// Ref identifies a blob. The zero value is invalid.
type Ref struct {
	// Container has 3…63 lower-case letters, digits and single hyphens between them, as in
	// Azure.
	Container string

	// Name has up to 200 lower-case letters, digits, hyphens, underscores and dots, in
	// segments separated by slashes. A segment is not empty and neither begins nor ends with a
	// dot. A name may be a prefix of another: there are no folders, only prefixes.
	Name string
}

// Parse parses what [Ref.String] returned. The error is [ErrInvalid].
func Parse(uri string) (Ref, error) {
	rest, ok := strings.CutPrefix(uri, scheme)
	if !ok {
		return Ref{}, fmt.Errorf("%w: the reference %.80q does not begin with %s", ErrInvalid, uri, scheme)
	}
	var r Ref
	r.Container, r.Name, _ = strings.Cut(rest, "/")
	if err := r.check(); err != nil {
		return Ref{}, err
	}
	return r, nil
}

// String returns the reference as a URI: "blob://container/name".
func (r Ref) String() string { return scheme + r.Container + "/" + r.Name }

// MarshalText returns the URI, so that a reference can be a field of a message. It fails
// with [ErrInvalid] if r is invalid.
func (r Ref) MarshalText() ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	return []byte(r.String()), nil
}

// UnmarshalText parses a URI as [Parse] does.
func (r *Ref) UnmarshalText(text []byte) (err error) {
	*r, err = Parse(string(text))
	return err
}

// check fails with [ErrInvalid] if r is invalid.
func (r Ref) check() error { return blobcheck.Ref(r.Container, r.Name) }
