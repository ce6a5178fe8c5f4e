// Package blobcheck holds the rules for the names and the metadata of blobs, which every store
// checks before it does anything.
package blobcheck

import (
	"errors"
	"fmt"
	"strings"
)

// ErrInvalid is that of package blob.
var ErrInvalid = errors.New("invalid argument")

// Limits of a reference, in characters.
const (
	MinContainer = 3
	MaxContainer = 63
	MaxName      = 200 // leaves room for what a file name adds
)

// Ref fails with [ErrInvalid] if there can be no such blob.
func Ref(container, name string) error {
	if err := Container(container); err != nil {
		return err
	}
	if name == "" || len(name) > MaxName {
		return fmt.Errorf("%w: the name %.80q has %d characters and needs 1 to %d", ErrInvalid, name, len(name), MaxName)
	}
	for segment := range strings.SplitSeq(name, "/") {
		// This excludes "." and "..", hidden files, and the trailing dots that
		// Windows strips.
		if segment == "" || segment[0] == '.' || segment[len(segment)-1] == '.' {
			return fmt.Errorf("%w: in the name %q a part between slashes is empty, or begins or ends with a dot", ErrInvalid, name)
		}
	}
	return checkLetters(name)
}

// Container fails with [ErrInvalid] if no container can have this name.
func Container(c string) error {
	if len(c) < MinContainer || len(c) > MaxContainer {
		return fmt.Errorf("%w: the container %.80q has %d characters and needs %d to %d",
			ErrInvalid, c, len(c), MinContainer, MaxContainer)
	}
	for i := range len(c) {
		hyphen := c[i] == '-' && i > 0 && i < len(c)-1 && c[i-1] != '-'
		if !alphanumeric(c[i]) && !hyphen {
			return fmt.Errorf("%w: the container %q may have lower-case letters, digits and single hyphens between them", ErrInvalid, c)
		}
	}
	return nil
}

// Prefix fails with [ErrInvalid] if no name in the container can begin with the prefix.
func Prefix(container, prefix string) error {
	if err := Container(container); err != nil {
		return err
	}
	if len(prefix) > MaxName {
		return fmt.Errorf("%w: the prefix has %d characters and a name has at most %d", ErrInvalid, len(prefix), MaxName)
	}
	return checkLetters(prefix)
}

func checkLetters(name string) error {
	for i := range len(name) {
		if c := name[i]; !alphanumeric(c) && c != '-' && c != '_' && c != '.' && c != '/' {
			return fmt.Errorf("%w: the name %q may have lower-case letters, digits, hyphens, underscores, dots and slashes", ErrInvalid, name)
		}
	}
	return nil
}

func alphanumeric(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }

// MaxMetadata is the size of a blob's metadata at most: names and values in bytes together.
const MaxMetadata = 8000

// ReservedMetadata begins the names that stores keep for themselves.
const ReservedMetadata = "millrace_"

// Metadata fails with [ErrInvalid] for metadata that not every store can keep. Names are
// lower-case letters, digits and underscores, begin with a letter and not with
// [ReservedMetadata]. Values are printable ASCII, not empty, without surrounding spaces. Names
// and values have at most [MaxMetadata] bytes together.
func Metadata(metadata map[string]string) error {
	size := 0
	for name, value := range metadata {
		if !metadataName(name) {
			return fmt.Errorf("%w: the metadata name %.80q may have lower-case letters, digits and underscores, and begins with a letter", ErrInvalid, name)
		}
		if strings.HasPrefix(name, ReservedMetadata) {
			return fmt.Errorf("%w: the metadata name %.80q begins with %s, which stores keep for themselves", ErrInvalid, name, ReservedMetadata)
		}
		if value == "" || value != strings.TrimSpace(value) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return fmt.Errorf("%w: the metadata value of %q must be printable ASCII, not empty, without surrounding spaces", ErrInvalid, name)
		}
		size += len(name) + len(value)
	}
	if size > MaxMetadata {
		return fmt.Errorf("%w: the metadata have %d bytes, the limit is %d", ErrInvalid, size, MaxMetadata)
	}
	return nil
}

func metadataName(name string) bool {
	for i := range len(name) {
		if !alphanumeric(name[i]) && name[i] != '_' {
			return false
		}
	}
	return name != "" && 'a' <= name[0] && name[0] <= 'z'
}
