package report

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
)

// file is a file under way. It has a temporary name, so that there is never half a file under its own.
type file struct {
	*bufio.Writer
	under *os.File
	path  string
}

func create(folder, name string) (*file, error) {
	under, err := os.CreateTemp(folder, "."+name+".*")
	if err != nil {
		return nil, err
	}
	return &file{bufio.NewWriterSize(under, 64<<10), under, filepath.Join(folder, name)}, nil
}

// done writes the file through to the disk.
func (f *file) done() error {
	err := f.Flush()
	if err == nil {
		err = f.under.Chmod(0o644)
	}
	if err == nil {
		err = f.under.Sync()
	}
	return errors.Join(err, f.under.Close())
}

// publish gives the file its name, in place of an older one.
func (f *file) publish() error { return os.Rename(f.under.Name(), f.path) }

// drop removes a file that was not published.
func (f *file) drop() {
	_ = f.under.Close() // it may be closed
	_ = os.Remove(f.under.Name())
}
