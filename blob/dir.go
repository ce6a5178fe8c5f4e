package blob

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strings"
	"time"
)

// Directory is a store in a directory of the file system. Make one with [Dir]. Any number
// of processes may use one directory at a time. It is safe for concurrent use.
//
// A container is a folder, and a blob a file in it. A slash in a blob's name becomes a plus
// sign in the file's: with folders, "a" and "a/b" could not both exist. No name and no
// symbolic link leads out of the directory.
type Directory struct {
	path string
	root *os.Root
}

const (
	slash = "+" // replaces a slash in file names; no blob's name contains it

	// partial is the prefix of files being written. No name of a blob begins with a dot.
	partial = ".partial-"

	// abandoned is the age after which a partial file is removed: its writer was killed.
	abandoned = 24 * time.Hour
)

// Dir opens the store in a directory, creates the directory if it does not exist, and
// removes partial files that killed writers left more than a day ago. Call
// [Directory.Close] when done.
func Dir(path string) (*Directory, error) {
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, fmt.Errorf("open the blob directory: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open the blob directory: %w", err)
	}
	d := &Directory{path: path, root: root}
	d.removeAbandoned()
	return d, nil
}

// Close releases the directory. Open readers can still be read.
func (d *Directory) Close() error { return d.root.Close() }

// Path returns the path of a blob's file, for messages.
func (d *Directory) Path(ref Ref) string {
	return d.path + string(os.PathSeparator) + ref.Container + string(os.PathSeparator) + fileName(ref.Name)
}

// Put stores a blob; see [Store].
func (d *Directory) Put(ctx context.Context, ref Ref, r io.Reader) error {
	return d.failure("put", ref, d.write(ctx, ref, r, d.root.Rename))
}

// Create stores a blob that does not exist; see [Store].
func (d *Directory) Create(ctx context.Context, ref Ref, r io.Reader) error {
	if ref.Check() == nil { // do not write a blob that exists already
		if _, err := d.root.Lstat(file(ref)); err == nil {
			return d.failure("create", ref, ErrExists)
		}
	}
	// A link fails if the name is taken; a rename would replace.
	err := d.write(ctx, ref, r, func(from, to string) error {
		err := d.root.Link(from, to)
		if errors.Is(err, fs.ErrExist) {
			return ErrExists
		}
		return err
	})
	return d.failure("create", ref, err)
}

// write writes a temporary file and then gives it the blob's name, atomically. The file is on disk
// before it has the name, because a reader of the blob may put its reference on a durable queue.
func (d *Directory) write(ctx context.Context, ref Ref, r io.Reader, commit func(from, to string) error) (err error) {
	if err := ready(ctx, ref.Check()); err != nil {
		return err
	}
	if err := d.root.Mkdir(ref.Container, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return d.inDirectory(err)
	}
	temporary := ref.Container + "/" + partial + rand.Text()
	f, err := d.root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return d.inDirectory(err)
	}
	defer func() {
		// After a rename there is nothing left to remove.
		if e := d.root.Remove(temporary); err == nil && !errors.Is(e, fs.ErrNotExist) {
			err = d.inDirectory(e)
		}
	}()
	from := &source{ctx: ctx, r: r}
	_, err = io.Copy(f, from)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	switch {
	case from.err != nil:
		return from.err
	case err != nil:
		return d.inDirectory(err)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	if err := commit(temporary, file(ref)); err != nil {
		return d.inDirectory(err)
	}
	d.syncFolder(ref.Container)
	return nil
}

// syncFolder makes the new name durable. Some systems cannot do that and have no other way,
// so errors are ignored.
func (d *Directory) syncFolder(container string) {
	if f, err := d.root.Open(container); err == nil {
		_ = f.Sync()
		_ = f.Close()
	}
}

// Open opens a blob for reading; see [Store].
func (d *Directory) Open(ctx context.Context, ref Ref) (*Reader, error) {
	r, err := d.open(ctx, ref)
	return r, d.failure("open", ref, err)
}

func (d *Directory) open(ctx context.Context, ref Ref) (*Reader, error) {
	if err := ready(ctx, ref.Check()); err != nil {
		return nil, err
	}
	// Opening a named pipe would block.
	if _, err := d.stat(ref); err != nil {
		return nil, err
	}
	f, err := d.root.Open(file(ref))
	if err != nil {
		return nil, d.missing(err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(d.inDirectory(err), f.Close())
	}
	return &Reader{ReadCloser: f, Size: info.Size()}, nil
}

// Size returns the size of a blob in bytes; see [Store].
func (d *Directory) Size(ctx context.Context, ref Ref) (int64, error) {
	if err := ready(ctx, ref.Check()); err != nil {
		return 0, d.failure("stat", ref, err)
	}
	info, err := d.stat(ref)
	if err != nil {
		return 0, d.failure("stat", ref, err)
	}
	return info.Size(), nil
}

func (d *Directory) stat(ref Ref) (fs.FileInfo, error) {
	info, err := d.root.Stat(file(ref))
	if err != nil {
		return nil, d.missing(err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("in %s: not a regular file", d.path)
	}
	return info, nil
}

// Delete deletes a blob; see [Store].
func (d *Directory) Delete(ctx context.Context, ref Ref) error {
	err := ready(ctx, ref.Check())
	if err == nil {
		err = d.root.Remove(file(ref))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		err = d.inDirectory(err)
	}
	return d.failure("delete", ref, err)
}

// List yields blobs; see [Store].
func (d *Directory) List(ctx context.Context, container, prefix string) iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) {
		refs, err := d.refs(ctx, container, prefix)
		yieldAll(ctx, refs, d.failure("list", Ref{container, prefix}, err), yield)
	}
}

func (d *Directory) refs(ctx context.Context, container, prefix string) ([]Ref, error) {
	if err := ready(ctx, checkPrefix(container, prefix)); err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(d.root.FS(), container)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, d.inDirectory(err)
	}
	var refs []Ref
	for _, e := range entries {
		ref := Ref{container, strings.ReplaceAll(e.Name(), slash, "/")}
		// Skip files that are not blobs: partial files, and what people and their
		// tools leave in folders.
		if e.Type().IsRegular() && strings.HasPrefix(ref.Name, prefix) && ref.Check() == nil {
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, func(a, b Ref) int { return strings.Compare(a.Name, b.Name) })
	return refs, nil
}

// removeAbandoned removes the partial files of killed writers. Its errors do not keep the store
// from opening.
func (d *Directory) removeAbandoned() {
	containers, _ := fs.ReadDir(d.root.FS(), ".")
	for _, c := range containers {
		if !c.IsDir() {
			continue
		}
		entries, _ := fs.ReadDir(d.root.FS(), c.Name())
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), partial) {
				continue
			}
			if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > abandoned {
				_ = d.root.Remove(c.Name() + "/" + e.Name())
			}
		}
	}
}

func file(ref Ref) string { return ref.Container + "/" + fileName(ref.Name) }

func fileName(name string) string { return strings.ReplaceAll(name, "/", slash) }

// failure adds what was attempted; nil stays nil.
func (d *Directory) failure(op string, ref Ref, err error) error {
	if err == nil {
		return nil
	}
	return failure(op, ref, err)
}

// missing turns the error of a missing file into [ErrMissing], and adds the directory.
func (d *Directory) missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("in %s: %w", d.path, ErrMissing)
	}
	return d.inDirectory(err)
}

// inDirectory adds the directory to an error, instead of a path that repeats the reference or is
// random.
func (d *Directory) inDirectory(err error) error {
	var (
		path *fs.PathError
		link *os.LinkError
	)
	switch {
	case errors.As(err, &path):
		err = path.Err
	case errors.As(err, &link):
		err = link.Err
	case err == nil, errors.Is(err, ErrExists):
		return err
	}
	return fmt.Errorf("in %s: %w", d.path, err)
}
