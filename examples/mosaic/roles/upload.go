package roles

import "io"

// upload is a writer whose content is stored as it is written: what a picture
// encoder writes needs no room in between. Close returns what became of it.
type upload struct {
	*io.PipeWriter
	done chan error
}

// newUpload starts to store. The goroutine is owned by the upload: Close, or finish,
// must be called, and waits for its end.
func newUpload(store func(io.Reader) error) *upload {
	r, w := io.Pipe()
	u := &upload{w, make(chan error, 1)}
	go func() {
		err := store(r)
		_ = r.CloseWithError(err) // never fails; a writer must not wait for who reads no more
		u.done <- err
	}()
	return u
}

// Close says that this was all, and waits until it is stored.
func (u *upload) Close() error {
	_ = u.PipeWriter.Close() // never fails
	return <-u.done
}

// finish is Close after a writer that may have failed: then nothing is stored.
func (u *upload) finish(err error) error {
	_ = u.PipeWriter.CloseWithError(err) // never fails; nil is Close
	if stored := <-u.done; stored != nil {
		return stored // the cause, of which err may be the consequence
	}
	return err
}
