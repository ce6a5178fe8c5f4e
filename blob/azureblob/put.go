package azureblob

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/md5" //nolint:gosec // the service's checksum of what is on the wire
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	sdkblob "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/internal/blobcheck"
	"github.com/millrace/millrace/internal/serviceerror"
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
	o = cmp.Or(o, &blob.PutOptions{})
	bad := cmp.Or(blobcheck.Ref(ref.Container, ref.Name), blobcheck.Metadata(o.Metadata))
	if err := s.check(ctx, ref.Container, bad); err != nil {
		return err
	}
	p := &putting{store: s, ref: ref, metadata: sentMetadata(o.Metadata, token), token: token}
	if token != "" {
		p.condition = &sdkblob.AccessConditions{ModifiedAccessConditions: &sdkblob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)}}
	}
	blocks := &blocks{r: bufio.NewReader(&reader{ctx, r}), size: s.blockSize}
	first, err := blocks.next()
	switch {
	case err != nil:
		return err
	case blocks.ended:
		return p.commit(ctx, func(try context.Context) error {
			r, err := p.store.blob(p.ref).Upload(try, body(first), &blockblob.UploadOptions{
				Metadata: p.metadata, AccessConditions: p.condition, TransactionalValidation: checksum(first),
			})
			if err == nil && r.ETag == nil {
				err = &foreignError{Lacks: "ETag of the blob"}
			}
			return err
		})
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

// blocks cuts a stream into blocks. It has one block in memory.
type blocks struct {
	r     *bufio.Reader
	size  int
	buf   []byte
	ended bool // the block that was returned last is the last one
}

// reader reads until the context ends. It does not interrupt a Read that blocks: only the creator
// of r can.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r *reader) Read(p []byte) (int, error) {
	if err := serviceerror.Ended(r.ctx); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// next returns the next block, which is valid until the next call, or the error of the stream. The
// first block of an empty stream is empty. It must not be called after the last one.
func (b *blocks) next() ([]byte, error) {
	const firstSize = 64 << 10
	b.buf = b.buf[:0]
	for len(b.buf) < b.size {
		if len(b.buf) == cap(b.buf) {
			grown := make([]byte, len(b.buf), min(max(2*cap(b.buf), firstSize), b.size))
			copy(grown, b.buf)
			b.buf = grown
		}
		n, err := b.r.Read(b.buf[len(b.buf):cap(b.buf)])
		b.buf = b.buf[:len(b.buf)+n]
		if errors.Is(err, io.EOF) {
			b.ended = true
			return b.buf, nil
		}
		if err != nil {
			return nil, err
		}
	}
	// Only the next byte tells whether this block is the last one.
	_, err := b.r.Peek(1)
	if b.ended = errors.Is(err, io.EOF); err != nil && !b.ended {
		return nil, err
	}
	return b.buf, nil
}

// blockID is made of the position and the content, so that a block that the service has need not
// be sent again. All ids have the same length, as the service wants.
func blockID(position int, content []byte) string {
	sum := sha256.Sum256(content)
	id := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(sum)), uint32(position)) //nolint:gosec // below 50,000
	return base64.StdEncoding.EncodeToString(append(id, sum[:]...))
}

// uploadBlocks sends the blocks that the service does not have, and commits them all.
func (p *putting) uploadBlocks(ctx context.Context, block []byte, rest *blocks) (err error) {
	has, err := p.blockList(ctx)
	if err != nil {
		return err
	}
	// A create should not upload in vain. An upload that is resumed must know, if its old blocks
	// are dropped, whether that was because their time was over.
	var before azcore.ETag
	if p.token != "" || len(has) > 0 {
		if before, err = p.current(ctx); err != nil {
			return err
		}
	}
	if p.token != "" && before != "" {
		return blob.ErrExists
	}
	var ids []string
	for {
		if len(ids) == p.store.maxBlocks {
			return invalid("use a larger BlockSize", "the content has more than %d blocks of %d bytes", p.store.maxBlocks, p.store.blockSize)
		}
		id := blockID(len(ids), block)
		if size, ok := has[id]; !ok || size != int64(len(block)) {
			if err := p.stage(ctx, id, block); err != nil {
				return err
			}
		}
		ids = append(ids, id)
		if rest.ended {
			break
		}
		if block, err = rest.next(); err != nil {
			return err
		}
	}
	err = p.commit(ctx, func(try context.Context) error {
		r, err := p.store.blob(p.ref).CommitBlockList(try, ids, &blockblob.CommitBlockListOptions{Metadata: p.metadata, AccessConditions: p.condition})
		if err == nil && r.ETag == nil {
			err = &foreignError{Lacks: "ETag of the blob"}
		}
		return err
	})
	if hasCode(err, codeInvalidBlockList) {
		return p.overtaken(ctx, before, err)
	}
	return err
}

// blockList returns the sizes of the blocks that the service has for this blob, by id, committed
// or not.
func (p *putting) blockList(ctx context.Context) (sizes map[string]int64, err error) {
	err = p.store.do(ctx, p.ref.String(), func(try context.Context) error {
		r, err := p.store.blob(p.ref).GetBlockList(try, blockblob.BlockListTypeAll, nil)
		if err != nil {
			return err
		}
		if r.RequestID == nil {
			return &foreignError{Lacks: "request id"}
		}
		sizes = make(map[string]int64)
		for _, list := range [][]*blockblob.Block{r.CommittedBlocks, r.UncommittedBlocks} {
			for _, b := range list {
				if b != nil && b.Name != nil && b.Size != nil {
					sizes[*b.Name] = *b.Size
				}
			}
		}
		return nil
	})
	if errors.Is(err, blob.ErrMissing) {
		return nil, nil
	}
	return sizes, err
}

// current returns the ETag of the blob, "" if it does not exist.
func (p *putting) current(ctx context.Context) (azcore.ETag, error) {
	v, err := p.store.stat(ctx, p.ref)
	if errors.Is(err, blob.ErrMissing) {
		return "", nil
	}
	return v.etag, err
}

func (p *putting) stage(ctx context.Context, id string, content []byte) error {
	s := p.store
	return s.repeat(ctx, id, func(ctx context.Context) error {
		return s.inContainer(ctx, p.ref.Container, func() error {
			return s.once(ctx, func(try context.Context) error {
				r, err := s.blob(p.ref).StageBlock(try, id, body(content), &blockblob.StageBlockOptions{TransactionalValidation: checksum(content)})
				if err == nil && r.RequestID == nil {
					err = &foreignError{Lacks: "request id"}
				}
				return err
			})
		})
	})
}

// overtaken decides what it means that the service no longer has blocks that it had during this
// call: the blob was put by another call since. A create has lost to it. A put has taken effect
// as if just before it, and was replaced at once.
func (p *putting) overtaken(ctx context.Context, before azcore.ETag, lost error) error {
	now, err := p.current(ctx)
	switch {
	case err != nil:
		return err
	case now == "" || now == before:
		known := (*blob.Error)(nil)
		errors.As(lost, &known)
		known.Kind, known.Hint = blob.ErrUnavailable, "the service has dropped blocks of the upload: put the blob again"
		return known
	case p.token != "":
		return blob.ErrExists
	default:
		return nil
	}
}
