package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
)

// Errors of every store. Match them with [errors.Is].
var (
	// ErrMissing means that the blob does not exist.
	ErrMissing = errors.New("blob does not exist")

	// ErrExists means that the blob exists already.
	ErrExists = errors.New("blob already exists")
)

// Store keeps blobs. The package comment describes the guarantees of every store.
//
// A bad reference fails with [ErrBadRef] before anything happens. A call whose context ends
// fails with the context's cause and has changed nothing, unless the change was already
// complete.
type Store interface {
	// Put stores the content of r, up to its end, and replaces a blob that exists. If r fails,
	// Put fails with the same error and changes nothing.
	Put(ctx context.Context, ref Ref, r io.Reader) error

	// Create is Put for a blob that does not exist; otherwise it fails with [ErrExists],
	// before or after reading r.
	Create(ctx context.Context, ref Ref, r io.Reader) error

	// Open opens a blob for reading. The caller closes the Reader. The error is [ErrMissing]
	// if the blob does not exist.
	Open(ctx context.Context, ref Ref) (*Reader, error)

	// Size returns the size of a blob in bytes, or [ErrMissing].
	Size(ctx context.Context, ref Ref) (int64, error)

	// Delete deletes a blob. It does nothing if the blob does not exist, so that it can be
	// repeated.
	Delete(ctx context.Context, ref Ref) error

	// List yields the blobs of a container whose names begin with the prefix, in the byte
	// order of their names. Blobs that are put or deleted meanwhile may or may not be among
	// them. A container without blobs is empty, never missing. An error is yielded last, with
	// a zero Ref.
	List(ctx context.Context, container, prefix string) iter.Seq2[Ref, error]
}

// Reader reads one blob from its beginning. It is not safe for concurrent use.
type Reader struct {
	io.ReadCloser
	Size int64 // of the whole blob, in bytes
}

// Exists reports whether the blob exists.
func Exists(ctx context.Context, s Store, ref Ref) (bool, error) {
	_, err := s.Size(ctx, ref)
	if errors.Is(err, ErrMissing) {
		return false, nil
	}
	return err == nil, err
}

// failure adds what was attempted on which blob.
func failure(op string, ref Ref, err error) error {
	return fmt.Errorf("%s %v: %w", op, ref, err)
}

// ready returns the error for which a call must not begin: that of its reference, or the cause of
// an ended context.
func ready(ctx context.Context, refErr error) error {
	if refErr != nil {
		return refErr
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// source reads from r until the context ends, and keeps the error. It cannot interrupt a Read that
// blocks.
type source struct {
	ctx context.Context
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (n int, err error) {
	if s.ctx.Err() != nil {
		s.err = context.Cause(s.ctx)
		return 0, s.err
	}
	n, err = s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}
