package blob

import (
	"errors"
	"fmt"
	"strings"
)

// Limits of a [Ref], in characters.
const (
	MinContainer = 3
	MaxContainer = 63
	MaxName      = 200 // leaves room for what a file name adds
)

// scheme begins the URI of a reference.
const scheme = "blob://"

// ErrBadRef means that a text or a [Ref] is not a valid reference.
var ErrBadRef = errors.New("bad blob reference")

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

// Parse parses what [Ref.String] returned. The error is [ErrBadRef].
func Parse(uri string) (Ref, error) {
	rest, ok := strings.CutPrefix(uri, scheme)
	if !ok {
		return Ref{}, fmt.Errorf("%w: %.80q does not begin with %s", ErrBadRef, uri, scheme)
	}
	var r Ref
	r.Container, r.Name, _ = strings.Cut(rest, "/")
	if err := r.Check(); err != nil {
		return Ref{}, err
	}
	return r, nil
}

// String returns the reference as a URI: "blob://container/name".
func (r Ref) String() string { return scheme + r.Container + "/" + r.Name }

// MarshalText returns the URI, so that a reference can be a field of a message. It fails
// with [ErrBadRef] if r is invalid.
func (r Ref) MarshalText() ([]byte, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	return []byte(r.String()), nil
}

// UnmarshalText parses a URI as [Parse] does.
func (r *Ref) UnmarshalText(text []byte) (err error) {
	*r, err = Parse(string(text))
	return err
}

// Check fails with [ErrBadRef] if r is invalid. Every store calls it first.
func (r Ref) Check() error {
	if err := CheckContainer(r.Container); err != nil {
		return err
	}
	name := r.Name
	if name == "" || len(name) > MaxName {
		return fmt.Errorf("%w: the name %.80q has %d characters and needs 1 to %d", ErrBadRef, name, len(name), MaxName)
	}
	for segment := range strings.SplitSeq(name, "/") {
		// This excludes "." and "..", hidden files, and the trailing dots that
		// Windows strips.
		if segment == "" || segment[0] == '.' || segment[len(segment)-1] == '.' {
			return fmt.Errorf("%w: in the name %q a part between slashes is empty, or begins or ends with a dot", ErrBadRef, name)
		}
	}
	return checkLetters(name)
}

// CheckContainer fails with [ErrBadRef] if no container can have this name.
func CheckContainer(c string) error {
	if len(c) < MinContainer || len(c) > MaxContainer {
		return fmt.Errorf("%w: the container %.80q has %d characters and needs %d to %d",
			ErrBadRef, c, len(c), MinContainer, MaxContainer)
	}
	for i := range len(c) {
		hyphen := c[i] == '-' && i > 0 && i < len(c)-1 && c[i-1] != '-'
		if !alphanumeric(c[i]) && !hyphen {
			return fmt.Errorf("%w: the container %q may have lower-case letters, digits and single hyphens between them", ErrBadRef, c)
		}
	}
	return nil
}

// CheckPrefix fails with [ErrBadRef] if no name in the container can begin with the prefix.
func CheckPrefix(container, prefix string) error {
	if err := CheckContainer(container); err != nil {
		return err
	}
	if len(prefix) > MaxName {
		return fmt.Errorf("%w: the prefix has %d characters and a name has at most %d", ErrBadRef, len(prefix), MaxName)
	}
	return checkLetters(prefix)
}

func checkLetters(name string) error {
	for i := range len(name) {
		if c := name[i]; !alphanumeric(c) && c != '-' && c != '_' && c != '.' && c != '/' {
			return fmt.Errorf("%w: the name %q may have lower-case letters, digits, hyphens, underscores, dots and slashes", ErrBadRef, name)
		}
	}
	return nil
}

func alphanumeric(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }
