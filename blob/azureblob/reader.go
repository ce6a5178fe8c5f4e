package azureblob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	sdkblob "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/internal/blobcheck"
	"github.com/millrace/millrace/internal/serviceerror"
)

// Open implements [blob.Store] with Get Blob.
func (s *Store) Open(ctx context.Context, ref blob.Ref) (*blob.Reader, error) {
	err := s.check(ctx, ref.Container, blobcheck.Ref(ref.Container, ref.Name))
	d := &download{store: s, ctx: ctx, ref: ref}
	var v version
	if err == nil {
		err = s.repeat(ctx, ref.String(), func(ctx context.Context) (err error) {
			v, err = d.connect(ctx, nil)
			return err
		})
	}
	if err != nil {
		return nil, explain("open", ref, err)
	}
	d.size, d.etag = v.info.Size, v.etag
	return &blob.Reader{ReadCloser: d, Info: v.info}, nil
}

// download reads a blob. When its connection breaks it asks for the rest.
type download struct {
	store  *Store
	ctx    context.Context // of the open
	ref    blob.Ref
	size   int64
	etag   azcore.ETag // of the version that is read
	offset int64       // of the next byte
	end    error       // what Read returns from now on; nil while there may be more

	body    io.ReadCloser // nil while there is no connection
	try     context.Context
	cancel  context.CancelCauseFunc // ends try
	timeout time.Duration           // of try
	timer   *time.Timer             // cancels try when nothing comes for timeout
}

// Read reads the next bytes.
func (d *download) Read(p []byte) (n int, err error) {
	if d.end == nil && d.offset == d.size {
		d.end = io.EOF
		d.disconnect()
	}
	if d.end != nil || len(p) == 0 {
		return 0, d.end
	}
	if d.body != nil {
		if n, _ = d.read(p); n > 0 {
			return n, nil // an error comes again
		}
		d.disconnect()
	}
	err = d.store.repeat(d.ctx, d.ref.String(), func(ctx context.Context) error {
		if _, err := d.connect(ctx, &d.etag); err != nil {
			return err
		}
		n, err = d.read(p)
		if n > 0 {
			return nil
		}
		d.disconnect()
		return err
	})
	if hasCode(err, codeConditionNotMet, codeBlobNotFound, codeContainerNotFound) {
		known := (*blob.Error)(nil)
		errors.As(err, &known)
		known.Kind = blob.ErrChanged
	}
	d.end = explain("read", d.ref, err)
	return n, d.end
}

// connect requests the blob from the offset on, of a certain version unless etag is nil.
func (d *download) connect(ctx context.Context, etag *azcore.ETag) (v version, err error) {
	if err := serviceerror.Ended(ctx); err != nil {
		return version{}, err
	}
	d.try, d.cancel = context.WithCancelCause(ctx)
	d.timeout = azurestorage.TryTimeout(ctx, d.store.limits.TryTimeout)
	cancel := d.cancel
	d.timer = time.AfterFunc(d.timeout, func() { cancel(azurestorage.ErrTryTimeout) })
	defer func() {
		d.timer.Stop()
		if err != nil {
			err = d.store.translate(ctx, d.try, d.timeout, err)
			d.disconnect()
		}
	}()
	o := &sdkblob.DownloadStreamOptions{Range: sdkblob.HTTPRange{Offset: d.offset}}
	if etag != nil {
		o.AccessConditions = &sdkblob.AccessConditions{ModifiedAccessConditions: &sdkblob.ModifiedAccessConditions{IfMatch: etag}}
	}
	r, err := d.store.blob(d.ref).DownloadStream(d.try, o)
	if err != nil {
		return version{}, err
	}
	d.body = r.Body
	v, err = newVersion(d.ref, r.ContentLength, r.LastModified, r.Date, r.ETag, r.Metadata)
	switch {
	case err != nil:
	case etag == nil && v.info.Size < 0:
		err = &foreignError{Lacks: "size of the blob"}
	case etag != nil && v.etag != *etag:
		err = &foreignError{Lacks: "ETag that was asked for"}
	case etag != nil && v.info.Size != d.size-d.offset,
		d.offset > 0 && (r.ContentRange == nil || !strings.HasPrefix(*r.ContentRange, fmt.Sprintf("bytes %d-", d.offset))):
		err = &foreignError{Lacks: "range that was asked for"}
	}
	return v, err
}

// read reads from the connection. It waits for the time-out of the request at most.
func (d *download) read(p []byte) (n int, err error) {
	d.timer.Reset(d.timeout)
	n, err = d.body.Read(p[:min(int64(len(p)), d.size-d.offset)])
	d.timer.Stop()
	d.offset += int64(n)
	if n > 0 {
		return n, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return 0, d.store.translate(d.ctx, d.try, d.timeout, err)
}

// disconnect drops the connection, unless the whole response was read.
func (d *download) disconnect() {
	if d.body != nil {
		_ = d.body.Close() // nothing was written
		d.body = nil
	}
	if d.cancel != nil {
		d.timer.Stop()
		d.cancel(nil)
	}
}

// Close ends the download. The error is always nil.
func (d *download) Close() error {
	d.disconnect()
	d.end = fs.ErrClosed
	return nil
}
