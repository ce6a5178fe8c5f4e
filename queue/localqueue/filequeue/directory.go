package filequeue

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/internal/openfile"
)

// directory is the data directory, held open. It remains the one that was locked even if it
// is renamed and another takes its name, so that a store never touches another's files.
type directory struct {
	root *os.Root
	path string // as given to Open, for messages only

	link func(from, to string) error // Root.Link, except in tests
}

// openDirectory opens a directory, and creates it if it does not exist.
func openDirectory(path string) (*directory, error) {
	if err := openfile.MakeDirectory(path, 0o700); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open the data directory: %w", err)
	}
	return &directory{root: root, path: path, link: root.Link}, nil
}

// named returns the path of a file, for messages.
func (d *directory) named(name string) string { return filepath.Join(d.path, name) }

// create opens a file, and creates it if it does not exist.
func (d *directory) create(name string, flag int) (*os.File, error) {
	return d.open(name, flag|os.O_CREATE)
}

// open opens a file. Its error says if the directory was deleted or the file is a symbolic link to
// somewhere else, which the system's error does not say.
func (d *directory) open(name string, flag int) (*os.File, error) {
	f, err := d.root.OpenFile(name, flag, 0o600)
	if err == nil {
		return f, nil
	}
	info, failed := d.root.Stat(".")
	if failed == nil && !openfile.Linked(info) || errors.Is(failed, fs.ErrNotExist) {
		return nil, fmt.Errorf("the data directory %s was deleted while it was in use: %w", d.path, err)
	}
	if target, failed := d.root.Readlink(name); failed == nil {
		// The error does not wrap fs.ErrNotExist: a link to nowhere is not a new store.
		return nil, fmt.Errorf("%s is a symbolic link to %s and cannot be used: the files of a store must be in its directory; "+
			"move the whole directory instead, and pass its new path: %s", name, target, err.Error())
	}
	return nil, err
}

func (d *directory) remove(name string) error {
	if err := d.root.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removeOwn removes a file if it is still the one that info describes: after everything in
// the directory was deleted, another store may have made one with the same name.
func (d *directory) removeOwn(name string, info os.FileInfo) (removed bool, err error) {
	now, err := d.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(info, now) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	err = d.root.Remove(name)
	return err == nil, err
}

// duplicate gives a file a second name, by a hard link or, where there are none, a copy.
func (d *directory) duplicate(name, to string) error {
	err := d.link(name, to)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	from, err := d.root.Open(name)
	if err != nil {
		return err
	}
	copied, err := d.create(to, os.O_WRONLY|os.O_EXCL)
	if err != nil {
		return errors.Join(err, from.Close())
	}
	_, err = io.Copy(copied, from)
	if err := errors.Join(err, copied.Sync(), copied.Close(), from.Close()); err != nil {
		return errors.Join(err, d.root.Remove(to))
	}
	return nil
}

// sync makes new names durable.
func (d *directory) sync() error { return openfile.SyncDirectory(d.root.Open, ".") }

func (d *directory) close() error { return d.root.Close() }
