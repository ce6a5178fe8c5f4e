package azureblob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/internal/serviceerror"
)

// check returns why a call must not begin. bad is what is wrong with its arguments.
func (s *Store) check(ctx context.Context, containerName string, bad error) error {
	switch {
	case bad != nil:
		return bad
	case s.location.Resource != "" && s.location.Resource != containerName:
		return invalid("", "the store is of the container %q alone", s.location.Resource)
	}
	return serviceerror.Ended(ctx)
}

// do sends requests and repeats them while they fail for a while, for RetryFor. The context that
// it gives them ends after TryTimeout.
func (s *Store) do(ctx context.Context, key string, send func(try context.Context) error) error {
	return s.repeat(ctx, key, func(ctx context.Context) error { return s.once(ctx, send) })
}

// repeat calls op while it fails for a while, for RetryFor.
func (s *Store) repeat(ctx context.Context, key string, op func(context.Context) error) error {
	gaveUp, err := s.limits.Repeat(ctx, key, blob.Transient, op)
	if gaveUp {
		return &blob.Error{Detail: "gave up after: " + err.Error(), Err: serviceerror.Ended(ctx)}
	}
	return err
}

// once sends one request with a context that ends after TryTimeout.
func (s *Store) once(ctx context.Context, send func(try context.Context) error) error {
	try, timeout, cancel := s.limits.Try(ctx)
	defer cancel()
	if err := send(try); err != nil {
		return s.translate(ctx, try, timeout, err)
	}
	return nil
}

func (s *Store) container(name string) *container.Client {
	return s.service.NewContainerClient(name)
}

func (s *Store) blob(ref blob.Ref) *blockblob.Client {
	return s.container(ref.Container).NewBlockBlobClient(ref.Name)
}

// explain says what was attempted on which blob; nil stays nil.
func explain(op string, ref blob.Ref, err error) error {
	if err == nil {
		return nil
	}
	e := &blob.Error{Err: err}
	// An error with an operation is that of the content's reader: it may come from another blob.
	if known, ok := err.(*blob.Error); ok && known.Op == "" { //nolint:errorlint // an error around it must not be lost
		c := *known
		e = &c
	}
	e.Op, e.Ref = op, ref
	return e
}

// hasCode reports whether the service refused a request with one of these storage error codes.
func hasCode(err error, codes ...string) bool {
	known := (*blob.Error)(nil)
	return errors.As(err, &known) && slices.Contains(codes, known.Code)
}

// The storage error codes that calls decide by.
const (
	codeBlobNotFound      = "BlobNotFound"
	codeContainerNotFound = "ContainerNotFound"
	codeContainerExists   = "ContainerAlreadyExists"
	codeConditionNotMet   = "ConditionNotMet"
	codeInvalidBlockList  = "InvalidBlockList"
)

// inContainer calls send, and if the container does not exist creates it and calls send again.
func (s *Store) inContainer(ctx context.Context, name string, send func() error) error {
	err := send()
	if !hasCode(err, codeContainerNotFound) {
		return err
	}
	if err := s.createContainer(ctx, name, nil); err != nil {
		if known := (*blob.Error)(nil); errors.As(err, &known) {
			c := *known
			c.Detail = fmt.Sprintf("the container %s does not exist and could not be created", name)
			return &c
		}
		return err
	}
	return send()
}

// createContainer creates a container that may have been created meanwhile.
func (s *Store) createContainer(ctx context.Context, name string, access *container.PublicAccessType) error {
	err := s.once(ctx, func(try context.Context) error {
		_, err := s.container(name).Create(try, &container.CreateOptions{Access: access})
		return err
	})
	if hasCode(err, codeContainerExists) {
		return nil
	}
	return err
}

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
	if f.Kind == nil || errors.Is(f.Kind, blob.ErrUnavailable) { // which of several accounts it is matters then
		f.Detail = strings.TrimSuffix(fmt.Sprintf("account %s: %s", s.location.Account, f.Detail), ": ")
	}
	return &blob.Error{Kind: f.Kind, Status: f.Status, Code: f.Code, RequestID: f.RequestID, Detail: f.Detail, Hint: f.Hint, Err: f.Err}
}
