package azureblob

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // the service's checksum of what is on the wire
	"crypto/rand"
	"errors"
	"io"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	sdkblob "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/millrace/millrace/blob"
)

// Put implements [blob.Store] with Put Blob, or with Put Block and Put Block List for more than a
// block.
func (s *Store) Put(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	return explain("put", ref, s.put(ctx, ref, r, o, ""))
}

// Create implements [blob.Store] as Put does, on condition that the blob does not exist.
func (s *Store) Create(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	return explain("create", ref, s.put(ctx, ref, r, o, rand.Text()))
}

// put puts a blob, or creates it if there is a token.
func (s *Store) put(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions, token string) error {
	if o == nil {
		o = &blob.PutOptions{}
	}
	bad := ref.Check()
	if bad == nil {
		bad = blob.CheckMetadata(o.Metadata)
	}
	if err := s.check(ctx, ref.Container, bad); err != nil {
		return err
	}
	p := &putting{store: s, ref: ref, metadata: sentMetadata(o.Metadata, token), token: token}
	if token != "" {
		p.condition = &sdkblob.AccessConditions{ModifiedAccessConditions: &sdkblob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)}}
	}
	blocks := newBlocks(ctx, r, s.blockSize)
	first, err := blocks.next()
	switch {
	case err != nil:
		return err
	case blocks.ended:
		return p.upload(ctx, first)
	default:
		return p.uploadBlocks(ctx, first, blocks)
	}
}

// putting is one call of Put or Create.
type putting struct {
	store     *Store
	ref       blob.Ref
	metadata  map[string]*string
	token     string                    // of a create; "" for a put
	condition *sdkblob.AccessConditions // of a create; nil for a put
}

// upload stores a blob with one request.
func (p *putting) upload(ctx context.Context, content []byte) error {
	return p.commit(ctx, func(try context.Context) error {
		r, err := p.store.blob(p.ref).Upload(try, body(content), &blockblob.UploadOptions{
			Metadata: p.metadata, AccessConditions: p.condition, TransactionalValidation: checksum(content),
		})
		if err == nil && r.ETag == nil {
			err = &foreignError{Lacks: "ETag of the blob"}
		}
		return err
	})
}

// commit sends the request by which the blob appears, and repeats it. If a create is told that
// the blob exists after a try whose outcome is unknown, that try may have been the one.
func (p *putting) commit(ctx context.Context, send func(try context.Context) error) error {
	s, repeated := p.store, false
	return s.repeat(ctx, p.ref.String(), func(ctx context.Context) error {
		err := s.inContainer(ctx, p.ref.Container, func() error { return s.once(ctx, send) })
		switch {
		case p.token != "" && hasCode(err, codeConditionNotMet):
			err = &blob.Error{Kind: blob.ErrExists}
			fallthrough
		case p.token != "" && repeated && errors.Is(err, blob.ErrExists):
			if p.created(ctx) {
				return nil
			}
		}
		repeated = true
		return err
	})
}

// created reports whether the blob is the one that this create has stored.
func (p *putting) created(ctx context.Context) bool {
	v, err := p.store.stat(ctx, p.ref)
	return err == nil && v.token == p.token
}

// body returns content as the SDK wants it.
func body(content []byte) io.ReadSeekCloser { return streaming.NopCloser(bytes.NewReader(content)) }

// checksum lets the service refuse content that was damaged on its way.
func checksum(content []byte) sdkblob.TransferValidationType {
	sum := md5.Sum(content) //nolint:gosec // see above
	return sdkblob.TransferValidationTypeMD5(sum[:])
}
