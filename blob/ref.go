package blob

import (
	"errors"
	"fmt"
	"strings"
)

// Bounds of a [Ref].
const (
	MinContainer = 3
	MaxContainer = 63
	MaxName      = 200 // leaves room for what a directory adds to make a file name of it
)

// scheme is that of the URIs that references travel as.
const scheme = "blob://"

// ErrBadRef means that a text or a [Ref] is no reference.
var ErrBadRef = errors.New("bad blob reference")

// Ref says which blob is meant. The zero value names none.
type Ref struct {
	// Container has 3…63 lower-case letters, digits and single hyphens between
	// them, as in Azure.
	Container string

	// Name has up to 200 lower-case letters, digits, hyphens, underscores and
	// dots, in segments separated by slashes; a segment neither is empty nor
	// begins or ends with a dot. A name may be the beginning of another: there
	// are no folders, only prefixes.
	Name string
}

// Parse reads a reference that [Ref.String] wrote. The error is [ErrBadRef].
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

// MarshalText writes the URI, so that a reference can be a field of a message.
// It fails if there is no valid one.
func (r Ref) MarshalText() ([]byte, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	return []byte(r.String()), nil
}

// UnmarshalText reads a URI as [Parse] does.
func (r *Ref) UnmarshalText(text []byte) (err error) {
	*r, err = Parse(string(text))
	return err
}

// Check refuses what is not a reference, with [ErrBadRef]. Every store calls it
// first.
func (r Ref) Check() error {
	if err := checkContainer(r.Container); err != nil {
		return err
	}
	return checkName(r.Name)
}

func checkContainer(c string) error {
	if len(c) < MinContainer || len(c) > MaxContainer {
		return fmt.Errorf("%w: the container %.80q has %d characters and needs %d to %d", ErrBadRef, c, len(c), MinContainer, MaxContainer)
	}
	for i := range len(c) {
		hyphen := c[i] == '-' && i > 0 && i < len(c)-1 && c[i-1] != '-'
		if !alphanumeric(c[i]) && !hyphen {
			return fmt.Errorf("%w: the container %q may have lower-case letters, digits and single hyphens between them", ErrBadRef, c)
		}
	}
	return nil
}

func checkName(name string) error {
	if name == "" || len(name) > MaxName {
		return fmt.Errorf("%w: the name %.80q has %d characters and needs 1 to %d", ErrBadRef, name, len(name), MaxName)
	}
	for segment := range strings.SplitSeq(name, "/") {
		// This leaves no room for "." and "..", for the hidden files of a
		// directory, nor for the dots that Windows takes off the end.
		if segment == "" || segment[0] == '.' || segment[len(segment)-1] == '.' {
			return fmt.Errorf("%w: in the name %q a part between slashes is empty, or begins or ends with a dot", ErrBadRef, name)
		}
	}
	return checkLetters(name)
}

// checkPrefix refuses a prefix that no name can begin with.
func checkPrefix(container, prefix string) error {
	if err := checkContainer(container); err != nil {
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
