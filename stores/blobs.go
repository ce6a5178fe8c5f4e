package stores

import (
	"io"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/azureblob"
	"github.com/millrace/millrace/internal/azurestorage"
)

// Options configure [Blobs] and [Tables]. Nil and the zero value mean the defaults.
type Options struct {
	// Credential authorizes requests to the address of an account without a signature. It has no
	// effect at other locations, so a program can set it for all of them. Defaults to azidentity's
	// DefaultAzureCredential.
	Credential azcore.TokenCredential
}

// credential returns the credential for a location of a service, or nil if the location has its own.
func (o *Options) credential(s azurestorage.Service, location string) azcore.TokenCredential {
	at, err := s.Parse(location)
	if o == nil || err != nil || at.Auth != azurestorage.TokenAuth {
		return nil
	}
	return o.Credential
}

// emptyHint is for a setting that was forgotten.
const emptyHint = "use the path of a directory, or the location of an account"

// BlobStore is an open blob store. It is safe for concurrent use. Close releases the directory or
// the idle connections.
type BlobStore interface {
	blob.Manager
	io.Closer
}

// Blobs opens the blobs at a location, as described in the package comment. The result is a
// [*blob.Directory] or an [*azureblob.Store]. The error is [blob.ErrInvalid] for an empty location or
// an invalid location of an account, which it does not repeat, or an error of the file system.
func Blobs(location string, o *Options) (BlobStore, error) {
	location = strings.TrimSpace(location)
	if location == "" {
		return nil, &blob.Error{Op: "open the blob store", Kind: blob.ErrInvalid, Detail: "the location is empty", Hint: emptyHint}
	}
	if !azurestorage.IsLocation(location) {
		d, err := blob.Dir(location)
		if err != nil {
			return nil, err
		}
		return d, nil
	}
	location = azurestorage.Blob.Of(location)
	s, err := azureblob.Open(location, &azureblob.Options{Credential: o.credential(azurestorage.Blob, location)})
	if err != nil {
		return nil, err
	}
	return s, nil
}
