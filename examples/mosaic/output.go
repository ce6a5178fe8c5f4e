package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/examples/internal/cli"
)

// output is the file of the mosaic.
type output struct {
	path string
	mode fs.FileMode // of the existing file, or of a new one
}

// notOnto refuses an output that is the input file, even under another name, as through a link. A file
// that does not exist or cannot be read is refused later.
func notOnto(in, out string) error {
	a, inErr := os.Stat(in)
	b, outErr := os.Stat(out)
	if inErr == nil && outErr == nil && os.SameFile(a, b) {
		return cli.UsageErrorf("-out %s is the picture of -in %s: the mosaic needs another name, or the picture would be lost", out, in)
	}
	return nil
}

// newOutput checks that the file can be written, before the mosaic is made. It leaves no file behind.
func newOutput(path string) (*output, error) {
	// A symbolic link is kept; its target is replaced.
	if behind, err := filepath.EvalSymlinks(path); err == nil {
		path = behind
	}
	o := &output{path: path, mode: 0o666}
	switch info, err := os.Stat(path); {
	case err == nil && info.IsDir():
		return nil, fmt.Errorf("cannot write %s: it is a folder", path)
	case err == nil && !info.Mode().IsRegular():
		return nil, fmt.Errorf("cannot write %s: it is not a regular file", path)
	case err == nil:
		o.mode = info.Mode().Perm()
		if err := writable(path); err != nil {
			return nil, o.failure(err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, o.failure(err)
	}
	f, err := o.create()
	if err != nil {
		return nil, o.failure(err)
	}
	if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
		return nil, o.failure(err)
	}
	return o, nil
}

// writable refuses a write-protected file. A rename could replace it, because that needs only
// permission for the folder.
func writable(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// create creates a file in the folder of the output, so that it can be renamed.
func (o *output) create() (*os.File, error) {
	name := filepath.Join(filepath.Dir(o.path), "."+filepath.Base(o.path)+"."+rand.Text()[:8]+".partial")
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, o.mode)
}

// replace replaces the output with the content of r, or leaves it unchanged.
func (o *output) replace(ctx context.Context, r io.Reader) (err error) {
	f, err := o.create()
	if err != nil {
		return o.failure(err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // the first error is the cause
		}
	}()
	_, err = io.Copy(f, r)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = os.Rename(f.Name(), o.path)
	}
	if err != nil {
		return o.failure(err)
	}
	return nil
}

// failure returns an error with the file that the user named instead of the temporary one.
func (o *output) failure(err error) error {
	var (
		path *fs.PathError
		link *os.LinkError
	)
	switch {
	case errors.As(err, &path):
		err = path.Err
	case errors.As(err, &link):
		err = link.Err
	}
	return fmt.Errorf("cannot write %s: %w", o.path, err)
}
