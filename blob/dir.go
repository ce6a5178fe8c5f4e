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

// Directory is a store in a directory of the file system. Make one with [Dir].
// Any number of processes may use one directory at a time.
//
// A container is a folder, and a blob a file in it. A slash in a name becomes a
// plus sign in the file's: were it a folder, "a" and "a/b" could not both exist.
// Nothing, be it a name or a symbolic link, leads out of the directory.
type Directory struct {
	path string
	root *os.Root
}

const (
	slash = "+" // for a slash of a name; no name has it

	// partial begins the names of files that are being written. No name of a
	// blob begins with a dot.
	partial = ".partial-"

	// abandoned is the age after which nobody writes to such a file any more:
	// its process was killed.
	abandoned = 24 * time.Hour
)

// Dir opens the store in a directory, which is made if it does not exist, and
// removes what writers killed long ago have left half done. Call
// [Directory.Close] in the end.
func Dir(path string) (*Directory, error) {
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, fmt.Errorf("open the blob directory: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open the blob directory: %w", err)
	}
	d := &Directory{path: path, root: root}
	d.tidy()
	return d, nil
}

// Close lets go of the directory. Readers that are open go on.
func (d *Directory) Close() error { return d.root.Close() }

// Path returns where the blob is kept, for people.
func (d *Directory) Path(ref Ref) string {
	return d.path + string(os.PathSeparator) + ref.Container + string(os.PathSeparator) + fileName(ref.Name)
}

// Put stores a blob; see [Store].
func (d *Directory) Put(ctx context.Context, ref Ref, r io.Reader) error {
	return d.failure("put", ref, d.write(ctx, ref, r, d.root.Rename))
}

// Create stores a blob that is not there yet; see [Store].
func (d *Directory) Create(ctx context.Context, ref Ref, r io.Reader) error {
	if ref.Check() == nil { // what exists need not be written first
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

// write writes a file under a name that is no blob's and then gives it its own,
// at once and as a whole. It is on the disk before it has the name: who sees the
// blob may send its reference to a queue that survives the power.
func (d *Directory) write(ctx context.Context, ref Ref, r io.Reader, commit func(from, to string) error) (err error) {
	if err := ready(ctx, ref.Check()); err != nil {
		return err
	}
	if err := d.root.Mkdir(ref.Container, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return d.here(err)
	}
	temporary := ref.Container + "/" + partial + rand.Text()
	f, err := d.root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return d.here(err)
	}
	defer func() {
		// After a rename there is nothing left to remove.
		if e := d.root.Remove(temporary); err == nil && !errors.Is(e, fs.ErrNotExist) {
			err = d.here(e)
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
		return d.here(err)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	if err := commit(temporary, file(ref)); err != nil {
		return d.here(err)
	}
	d.syncFolder(ref.Container)
	return nil
}

// syncFolder makes the new name durable. Not every system can; those have no
// other way either, so the error says nothing.
func (d *Directory) syncFolder(container string) {
	if f, err := d.root.Open(container); err == nil {
		_ = f.Sync()
		_ = f.Close()
	}
}

// Open begins to read a blob; see [Store].
func (d *Directory) Open(ctx context.Context, ref Ref) (*Reader, error) {
	r, err := d.open(ctx, ref)
	return r, d.failure("open", ref, err)
}

func (d *Directory) open(ctx context.Context, ref Ref) (*Reader, error) {
	if err := ready(ctx, ref.Check()); err != nil {
		return nil, err
	}
	// A pipe that somebody put there would be waited for when it is opened.
	if _, err := d.stat(ref); err != nil {
		return nil, err
	}
	f, err := d.root.Open(file(ref))
	if err != nil {
		return nil, d.absent(err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(d.here(err), f.Close())
	}
	return &Reader{ReadCloser: f, Size: info.Size()}, nil
}

// Size returns how many bytes the blob has; see [Store].
func (d *Directory) Size(ctx context.Context, ref Ref) (int64, error) {
	if err := ready(ctx, ref.Check()); err != nil {
		return 0, d.failure("look at", ref, err)
	}
	info, err := d.stat(ref)
	if err != nil {
		return 0, d.failure("look at", ref, err)
	}
	return info.Size(), nil
}

func (d *Directory) stat(ref Ref) (fs.FileInfo, error) {
	info, err := d.root.Stat(file(ref))
	if err != nil {
		return nil, d.absent(err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("in %s: it is not a regular file", d.path)
	}
	return info, nil
}

// Delete takes a blob away; see [Store].
func (d *Directory) Delete(ctx context.Context, ref Ref) error {
	err := ready(ctx, ref.Check())
	if err == nil {
		err = d.root.Remove(file(ref))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		err = d.here(err)
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
		return nil, d.here(err)
	}
	var refs []Ref
	for _, e := range entries {
		ref := Ref{container, strings.ReplaceAll(e.Name(), slash, "/")}
		// What is not ours is passed over: half-written files, and what people
		// and their tools leave in folders.
		if e.Type().IsRegular() && strings.HasPrefix(ref.Name, prefix) && ref.Check() == nil {
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, func(a, b Ref) int { return strings.Compare(a.Name, b.Name) })
	return refs, nil
}

// tidy removes what killed writers have left. That it cannot is no reason not to
// open the store.
func (d *Directory) tidy() {
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

// failure says what was attempted; nil stays nil.
func (d *Directory) failure(op string, ref Ref, err error) error {
	if err == nil {
		return nil
	}
	return failure(op, ref, err)
}

// absent turns the system's word for a missing file into ours, and says where it is not.
func (d *Directory) absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("in %s: %w", d.path, ErrMissing)
	}
	return d.here(err)
}

// here says in which directory the system failed, in place of a path that repeats
// the reference or is a random one.
func (d *Directory) here(err error) error {
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
