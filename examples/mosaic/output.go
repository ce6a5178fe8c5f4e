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

// output is the file of the mosaic, which is replaced as a whole.
type output struct {
	path string
	mode fs.FileMode // of the existing file, or of a new one
}

// newOutput checks that the file can be written, before the mosaic is made. It leaves no file behind. It refuses the
// input file, even under another name, as through a link.
func newOutput(in, out string) (*output, error) {
	o := &output{path: out, mode: 0o666}
	// A symbolic link is kept; its target is replaced.
	if behind, err := filepath.EvalSymlinks(out); err == nil {
		o.path = behind
	}
	if info, err := os.Stat(o.path); err == nil {
		if picture, err := os.Stat(in); err == nil && os.SameFile(picture, info) {
			return nil, cli.UsageErrorf("-out %s is the picture of -in %s: the mosaic needs another name, or the picture would be lost", out, in)
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("cannot write %s: it is not a file", out)
		}
		o.mode = info.Mode().Perm()
		// A rename would replace even a write-protected file.
		f, err := os.OpenFile(o.path, os.O_WRONLY, 0)
		if err != nil {
			return nil, fmt.Errorf("cannot write the mosaic: %w", err)
		}
		_ = f.Close() // nothing was written
	}
	f, err := o.create()
	if err == nil {
		err = errors.Join(f.Close(), os.Remove(f.Name()))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot write %s: %w", out, err)
	}
	return o, nil
}

// create creates a file in the folder of the output, so that it can be renamed.
func (o *output) create() (*os.File, error) {
	name := filepath.Join(filepath.Dir(o.path), "."+filepath.Base(o.path)+"."+rand.Text()[:8]+".partial")
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, o.mode)
}

// replace replaces the output with the content of r, or leaves it unchanged.
func (o *output) replace(ctx context.Context, r io.Reader) error {
	f, err := o.create()
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", o.path, err)
	}
	_, err = io.Copy(f, r)
	err = errors.Join(err, f.Sync(), f.Close(), context.Cause(ctx))
	if err == nil {
		err = os.Rename(f.Name(), o.path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error is the cause
		return fmt.Errorf("cannot write %s: %w", o.path, err)
	}
	return nil
}
