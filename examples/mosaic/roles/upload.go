package roles

import "io"

// upload is a writer whose content is stored as it is written, so that an encoded picture is not
// buffered. Close returns the error of the store.
type upload struct {
	*io.PipeWriter
	done chan error
}

// newUpload starts store on a goroutine that the upload owns. The caller must call Close or finish,
// which waits for its end.
func newUpload(store func(io.Reader) error) *upload {
	r, w := io.Pipe()
	u := &upload{w, make(chan error, 1)}
	go func() {
		err := store(r)
		if err == nil {
			_, _ = io.Copy(io.Discard, r) // what another handler has stored already, store need not read
		}
		_ = r.CloseWithError(err) // never fails; unblocks a writer if store returned early
		u.done <- err
	}()
	return u
}

// Close ends the content and waits until it is stored.
func (u *upload) Close() error {
	_ = u.PipeWriter.Close() // never fails
	return <-u.done
}

// finish is Close with the error of the writer. If it is not nil, nothing is stored.
func (u *upload) finish(err error) error {
	_ = u.PipeWriter.CloseWithError(err) // never fails; nil is Close
	if stored := <-u.done; stored != nil {
		return stored // the cause; err may be its consequence
	}
	return err
}
