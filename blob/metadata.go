package blob

import (
	"fmt"
	"maps"
	"strings"
)

// MaxMetadata is the size of a blob's metadata at most: names and values in bytes together.
const MaxMetadata = 8000

// ReservedMetadata begins the names that stores keep for themselves.
const ReservedMetadata = "millrace_"

// CheckMetadata fails with [ErrInvalid] for metadata that not every store can keep. Names are
// lower-case letters, digits and underscores, begin with a letter and not with
// [ReservedMetadata]. Values are printable ASCII, not empty, without surrounding spaces. Names
// and values have at most [MaxMetadata] bytes together. Every store calls it first.
func CheckMetadata(metadata map[string]string) error {
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

// cloneMetadata returns a copy; that of no metadata is nil.
func cloneMetadata(metadata map[string]string) map[string]string {
	if len(metadata) == 0 {
		return nil
	}
	return maps.Clone(metadata)
}
