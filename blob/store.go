package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
)

// What a caller may want to tell apart with [errors.Is], whatever the store.
var (
	// ErrMissing means that there is no such blob.
	ErrMissing = errors.New("blob does not exist")

	// ErrExists means that there is one already.
	ErrExists = errors.New("blob exists already")
)

// Store keeps blobs. See the package comment for what holds for every store.
//
// A bad reference is refused with [ErrBadRef] before anything happens. A call
// whose context ends fails with the context's cause and has changed nothing,
// unless the change was already complete.
type Store interface {
	// Put stores what r holds, to its end, in place of what was there. If r
	// fails, so does Put, with that error, and nothing has changed.
	Put(ctx context.Context, ref Ref, r io.Reader) error

	// Create is Put for a blob that is not there yet; otherwise it fails with
	// [ErrExists], at once or after reading r.
	Create(ctx context.Context, ref Ref, r io.Reader) error

	// Open begins to read a blob. Whoever opened it closes it.
	Open(ctx context.Context, ref Ref) (*Reader, error)

	// Size returns how many bytes the blob has, or [ErrMissing].
	Size(ctx context.Context, ref Ref) (int64, error)

	// Delete takes the blob away. One that is not there is no error, so that
	// deleting can be repeated.
	Delete(ctx context.Context, ref Ref) error

	// List yields the blobs of a container whose names begin with the prefix, in
	// the order of their names as bytes. What is put or deleted meanwhile may be
	// among them or not. A container without blobs is empty, never missing. An
	// error is yielded last, with a zero Ref.
	List(ctx context.Context, container, prefix string) iter.Seq2[Ref, error]
}

// Reader reads one blob from its beginning. It is for one goroutine at a time.
type Reader struct {
	io.ReadCloser
	Size int64 // of the whole blob, in bytes
}

// Exists reports whether there is such a blob.
func Exists(ctx context.Context, s Store, ref Ref) (bool, error) {
	_, err := s.Size(ctx, ref)
	if errors.Is(err, ErrMissing) {
		return false, nil
	}
	return err == nil, err
}

// failure says what was attempted on which blob.
func failure(op string, ref Ref, err error) error {
	return fmt.Errorf("%s %v: %w", op, ref, err)
}

// ready refuses a call that must not begin.
func ready(ctx context.Context, bad error) error {
	if bad != nil {
		return bad
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// source is r for as long as the context lasts, and remembers how it failed. A
// Read that blocks is not interrupted: only who made r can do that.
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
