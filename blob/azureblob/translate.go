package azureblob

import (
	"context"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/internal/azurestorage"
)

// foreignError is a response with a success status that is not the service's.
type foreignError = azurestorage.ForeignError

// failures are what requests fail with. The codes are those of the Blob service REST API, "Blob service error codes".
var failures = azurestorage.Failures{
	Unavailable: blob.ErrUnavailable, Unauthorized: blob.ErrUnauthorized, Invalid: blob.ErrInvalid,
	Role: "Storage Blob Data Contributor",
	What: "blob service",
	Known: map[string]azurestorage.Meaning{
		codeBlobNotFound:           {Kind: blob.ErrMissing, Hint: ""},
		codeContainerNotFound:      {Kind: blob.ErrMissing, Hint: ""},
		"BlobAlreadyExists":        {Kind: blob.ErrExists, Hint: ""},
		"ContainerBeingDeleted":    {Kind: blob.ErrUnavailable, Hint: "wait, or use another container"},
		"ContainerDisabled":        {Kind: blob.ErrUnauthorized, Hint: "an administrator has disabled the container"},
		"Md5Mismatch":              {Kind: blob.ErrUnavailable, Hint: "the content was damaged on its way"},
		"PublicAccessNotPermitted": {Kind: blob.ErrUnauthorized, Hint: "allow public access to blobs in the account's configuration"},
		"BlobImmutableDueToPolicy": {Kind: blob.ErrUnauthorized, Hint: "the container has an immutability policy"},
		"LeaseIdMissing":           {Kind: blob.ErrUnauthorized, Hint: "another program holds a lease on the blob: wait until it ends, or break it"},
		"SnapshotsPresent":         {Kind: blob.ErrInvalid, Hint: "the blob has snapshots: delete them first"},
		"BlobArchived":             {Kind: blob.ErrInvalid, Hint: "the blob is in the archive tier: rehydrate it first"},
		"InvalidBlobType":          {Kind: blob.ErrInvalid, Hint: "another program made it a page or append blob: delete it first"},
		"InvalidBlobOrBlock":       {Kind: blob.ErrInvalid, Hint: "another program's upload of this blob has not ended: use another name, or wait for a week"},
	},
}

// translate turns an error of azblob into a [*blob.Error] without secrets. ctx is the caller's
// context, try the one that ends after timeout.
func (s *Store) translate(ctx, try context.Context, timeout time.Duration, err error) error {
	f := s.location.Failure(ctx, try, timeout, err, failures)
	return &blob.Error{Kind: f.Kind, Status: f.Status, Code: f.Code, RequestID: f.RequestID, Detail: f.Detail, Hint: f.Hint, Err: f.Err}
}
