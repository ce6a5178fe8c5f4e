package blob

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/blobcheck"
	"github.com/millrace/millrace/internal/openfile"
	"github.com/millrace/millrace/internal/serviceerror"
)

// Directory is a store in a directory of the file system. Create one with [Open]. It is safe for
// concurrent use.
type Directory struct {
	_ [0]sync.Mutex // go vet reports copies

	Manager
	root *os.Root
}

// Close releases the directory. Open readers can still be read. The store cannot be used any more.
func (d *Directory) Close() error { return d.root.Close() }

type directory struct {
	path string
	root *os.Root
	sync func(folder string) error // makes the names in a folder durable

	known sync.Map     // containers with durable names
	clock atomic.Value // a reading of the clock of the file system
}

// A reading says which time the file system had at an instant of this process.
type reading struct {
	theirs time.Time
	ours   time.Time // with its monotonic clock, so that nobody who sets the clock changes the age of blobs
}

const (
	slash = "+" // replaces a slash in file names; no blob's name contains it

	// partial is the prefix of files being written. No name of a blob begins with a dot.
	partial = ".partial-"

	// accessFile is the file of a container that is not private.
	accessFile = ".access"

	// abandoned is the age after which a partial file is removed: its writer was killed.
	abandoned = 24 * time.Hour
)

// Open opens the store in a directory of the file system, which it creates if it does not exist.
// Any number of processes may use one directory at a time. Call Close when done.
//
// A container is a folder, and a blob a file in it. A slash in a blob's name becomes a plus
// sign in the file's: with folders, "a" and "a/b" could not both exist. No name and no
// symbolic link leads out of the directory. The file of a blob without metadata is its content.
// Metadata are behind the content, in the same file, because one rename then replaces both.
//
// A blob that was stored survives a power cut, provided that the disk keeps what it reports as
// written. Folders and files that the store creates are private to their user, like the files of
// a queue: a large body is as secret as a small one. Modes of existing ones stay as they are.
//
// Open removes partial files that killed writers left more than a day ago, and creates a file for
// a moment to read the clock of the file system. If it cannot, in a directory that is read-only,
// [Info.Now] is unknown until a blob was put.
func Open(dir string) (*Directory, error) {
	d, err := openDirectory(dir)
	if err != nil {
		return nil, fmt.Errorf("open the blob directory: %w", err)
	}
	return &Directory{Manager: d, root: d.root}, nil
}

func openDirectory(path string) (*directory, error) {
	if path == "" {
		return nil, errors.New("its path is empty. Name a directory, such as ./blobs")
	}
	if err := openfile.MakeDirectory(os.Open, path, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	d := &directory{path: path, root: root, sync: func(folder string) error { return openfile.SyncDirectory(root.Open, folder) }}
	d.readClock()
	d.removeAbandoned()
	return d, nil
}

// Put stores a blob; see [Store].
func (d *directory) Put(ctx context.Context, ref Ref, r io.Reader, o *PutOptions) error {
	return failure("put", ref, d.put(ctx, ref, r, o, d.root.Rename))
}

// Create stores a blob that does not exist; see [Store].
func (d *directory) Create(ctx context.Context, ref Ref, r io.Reader, o *PutOptions) error {
	if readyToPut(ctx, ref, o) == nil { // do not write a blob that exists already
		if _, err := d.root.Lstat(file(ref)); err == nil {
			return failure("create", ref, ErrExists)
		}
	}
	// A link fails if the name is taken; a rename would replace.
	err := d.put(ctx, ref, r, o, func(from, to string) error {
		err := d.root.Link(from, to)
		if errors.Is(err, fs.ErrExist) {
			return ErrExists
		}
		return err
	})
	return failure("create", ref, err)
}

// put writes content and metadata to a file that commit gives the blob's name.
func (d *directory) put(ctx context.Context, ref Ref, r io.Reader, o *PutOptions, commit func(from, to string) error) error {
	if err := readyToPut(ctx, ref, o); err != nil {
		return err
	}
	return d.write(ref.Container, fileName(ref.Name), commit, func(f *os.File) error {
		from := &source{ctx: ctx, r: r}
		size, err := io.Copy(f, from)
		if from.err != nil {
			return from.err
		}
		if err == nil {
			err = writeTrailer(f, size, o.metadata())
		}
		if ended := serviceerror.Ended(ctx); err == nil && ended != nil {
			return ended
		}
		return d.inDirectory(err)
	})
}

// write fills a temporary file in a container, which it creates, and then gives the file its
// name, atomically. The file is on disk before it has the name, because a reader of the blob may
// put its reference on a durable queue. An error of fill is returned unchanged.
func (d *directory) write(container, name string, commit func(from, to string) error, fill func(*os.File) error) (err error) {
	if err := d.makeContainer(container); err != nil {
		return d.inDirectory(err)
	}
	temporary := container + "/" + partial + rand.Text()
	f, err := d.root.OpenFile(temporary, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return d.inDirectory(err)
	}
	defer func() {
		// After a rename there is nothing left to remove.
		if e := d.root.Remove(temporary); err == nil && !errors.Is(e, fs.ErrNotExist) {
			err = d.inDirectory(e)
		}
	}()
	if err := fill(f); err != nil {
		_ = f.Close() // the file is removed
		return err
	}
	err = f.Sync()
	d.keepTime(f)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = commit(temporary, container+"/"+name)
	}
	if err == nil {
		err = d.sync(container)
	}
	return d.inDirectory(err)
}

// makeContainer makes the folder of a container, and its name durable. Another process may have
// made the folder just now, so the first write to each container waits for the name.
func (d *directory) makeContainer(container string) error {
	err := d.root.Mkdir(container, 0o700)
	existed := errors.Is(err, fs.ErrExist)
	if err != nil && !existed {
		return err
	}
	if _, known := d.known.Load(container); known && existed {
		return nil
	}
	err = d.sync(".")
	if err == nil {
		d.known.Store(container, true)
	}
	return err
}

// Open opens a blob for reading; see [Store].
func (d *directory) Open(ctx context.Context, ref Ref) (*Reader, error) {
	f, info, err := d.open(ctx, ref)
	if err != nil {
		return nil, failure("open", ref, err)
	}
	return &Reader{ReadCloser: &contentReader{io.NewSectionReader(f, 0, info.Size), f}, Info: info}, nil
}

// contentReader reads the content of a file without its trailer.
type contentReader struct {
	*io.SectionReader
	io.Closer
}

// Stat describes a blob; see [Store].
func (d *directory) Stat(ctx context.Context, ref Ref) (Info, error) {
	f, info, err := d.open(ctx, ref)
	if err != nil {
		return Info{}, failure("stat", ref, err)
	}
	info.Now = d.now()
	return info, failure("stat", ref, f.Close())
}

// now returns the time of the file system, which may be that of another machine. It is zero if
// that is unknown.
func (d *directory) now() time.Time {
	r, known := d.clock.Load().(reading)
	if !known {
		return time.Time{}
	}
	return r.theirs.Add(time.Since(r.ours))
}

// readClock keeps the time of a new file.
func (d *directory) readClock() {
	name := partial + rand.Text()
	f, err := d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return
	}
	d.keepTime(f)
	_ = f.Close() // it is empty
	_ = d.root.Remove(name)
}

// keepTime keeps the time of a file that was written just now.
func (d *directory) keepTime(f *os.File) {
	if info, err := f.Stat(); err == nil {
		d.clock.Store(reading{theirs: info.ModTime(), ours: time.Now()})
	}
}

func (d *directory) open(ctx context.Context, ref Ref) (*os.File, Info, error) {
	if err := ready(ctx, ref.check()); err != nil {
		return nil, Info{}, err
	}
	f, info, err := d.openFile(ref)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("in %s: %w", d.path, ErrMissing)
	case err != nil:
		err = d.inDirectory(err)
	}
	return f, info, err
}

// openFile opens a blob's file and describes its content, all of one version.
func (d *directory) openFile(ref Ref) (_ *os.File, _ Info, err error) {
	// Opening a named pipe would block.
	if s, err := d.root.Stat(file(ref)); err != nil {
		return nil, Info{}, err
	} else if !s.Mode().IsRegular() {
		return nil, Info{}, errors.New("not a regular file")
	}
	f, err := d.root.Open(file(ref))
	if err != nil {
		return nil, Info{}, err
	}
	defer func() {
		if err != nil {
			_ = f.Close() // nothing was written
		}
	}()
	s, err := f.Stat()
	if err != nil {
		return nil, Info{}, err
	}
	size, metadata, err := readTrailer(f, s.Size())
	return f, Info{Ref: ref, Size: size, Modified: s.ModTime(), Metadata: metadata}, err
}

// Delete deletes a blob; see [Store].
func (d *directory) Delete(ctx context.Context, ref Ref) error {
	err := ready(ctx, ref.check())
	if err == nil {
		err = d.root.Remove(file(ref))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		err = d.inDirectory(err)
	}
	return failure("delete", ref, err)
}

// List yields blobs; see [Store]. It opens each file, for the metadata.
func (d *directory) List(ctx context.Context, container, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		refs, err := d.refs(ctx, container, prefix)
		now := d.now()
		for _, ref := range refs {
			f, info, e := d.open(ctx, ref)
			if errors.Is(e, ErrMissing) {
				continue // deleted meanwhile
			}
			if e == nil {
				e = f.Close()
			}
			if e != nil {
				err = e
				break
			}
			info.Now = now
			if !yield(info, nil) {
				return
			}
		}
		if err != nil {
			yield(Info{}, failure("list", Ref{container, prefix}, err))
		}
	}
}

func (d *directory) refs(ctx context.Context, container, prefix string) ([]Ref, error) {
	if err := ready(ctx, blobcheck.Prefix(container, prefix)); err != nil {
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
		if e.Type().IsRegular() && strings.HasPrefix(ref.Name, prefix) && ref.check() == nil {
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, func(a, b Ref) int { return strings.Compare(a.Name, b.Name) })
	return refs, nil
}

func (d *directory) Public(ctx context.Context, container string) (bool, error) {
	public, err := d.public(ctx, container)
	return public, failure("get access", Ref{Container: container}, err)
}

// publicRead is what the file of a public container says. That of a private one is empty.
const publicRead = "public-read"

func (d *directory) public(ctx context.Context, container string) (bool, error) {
	if err := readyForContainer(ctx, container); err != nil {
		return false, err
	}
	text, err := d.root.ReadFile(container + "/" + accessFile)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	said := strings.TrimSpace(string(text))
	if err == nil && said != "" && said != publicRead {
		err = fmt.Errorf("%w: unknown access policy %.40q", ErrInvalid, said)
	}
	if err != nil {
		return false, d.inDirectory(err)
	}
	return said == publicRead, nil
}

// SetPublic keeps the setting in a file.
func (d *directory) SetPublic(ctx context.Context, container string, public bool) error {
	err := readyForContainer(ctx, container)
	if err == nil {
		err = d.write(container, accessFile, d.root.Rename, func(f *os.File) error {
			text := ""
			if public {
				text = publicRead
			}
			_, err := f.WriteString(text + "\n")
			return d.inDirectory(err)
		})
	}
	return failure("set access", Ref{Container: container}, err)
}

// removeAbandoned removes the partial files of killed writers. Its errors do not keep the store
// from opening.
func (d *directory) removeAbandoned() {
	inFolders, _ := fs.Glob(d.root.FS(), "*/"+partial+"*")
	found, _ := fs.Glob(d.root.FS(), partial+"*")
	for _, name := range append(found, inFolders...) {
		if info, err := d.root.Lstat(name); err == nil && d.now().Sub(info.ModTime()) > abandoned {
			_ = d.root.Remove(name)
		}
	}
}

func file(ref Ref) string { return ref.Container + "/" + fileName(ref.Name) }

func fileName(name string) string { return strings.ReplaceAll(name, "/", slash) }

// inDirectory adds the directory to an error, instead of a path that repeats the reference or is
// random.
func (d *directory) inDirectory(err error) error {
	var (
		path *fs.PathError
		link *os.LinkError
	)
	switch {
	case errors.As(err, &path):
		err = d.explainLink(path)
	case errors.As(err, &link):
		err = link.Err
	case err == nil, errors.Is(err, ErrExists):
		return err
	}
	return fmt.Errorf("in %s: %w", d.path, err)
}

// explainLink returns the cause of an error, or that the container or the file is a symbolic
// link: one that leads out of the directory cannot be used.
func (d *directory) explainLink(err *fs.PathError) error {
	container, _, _ := strings.Cut(err.Path, "/")
	for _, name := range []string{container, err.Path} {
		if _, failed := d.root.Stat(name); failed == nil {
			continue // it leads into the directory, so it is not the cause
		}
		if target, failed := d.root.Readlink(name); failed == nil {
			return fmt.Errorf("%s is a symbolic link to %s, and blobs must be in the directory: %w", name, target, err.Err)
		}
	}
	return err.Err
}

// A trailer is what follows the content in a file of a [Open]ed directory: the metadata as JSON and a
// footer of fixed length with the size and the checksum of that JSON. A file that does not end
// in a footer is content alone. Content that itself ends in one is followed by a trailer, so
// that exactly the last one is taken off.
const (
	footerMark   = "\nmillrace-blob-metadata/1 "
	footerSize   = len(footerMark) + 8 + 1 + 2*sha256.Size + 1
	maxTrailer   = 64 << 10 // of the JSON, in bytes; metadata need less even if every byte is escaped
	footerFormat = footerMark + "%08x %x\n"
)

var errTrailer = errors.New("the metadata behind the content of the file are damaged")

// writeTrailer appends the metadata to a file that has so much content and is positioned at its
// end. It appends nothing if there are no metadata and none would be read.
func writeTrailer(f interface {
	io.Writer
	io.ReaderAt
}, size int64, metadata map[string]string) error {
	if len(metadata) == 0 {
		if footer, err := readFooter(f, size); err != nil || footer == nil {
			return err
		}
	}
	text, err := json.Marshal(metadata)
	if err == nil {
		_, err = fmt.Fprintf(f, "%s"+footerFormat, text, len(text), sha256.Sum256(text))
	}
	return err
}

func readTrailer(f io.ReaderAt, size int64) (content int64, metadata map[string]string, err error) {
	footer, err := readFooter(f, size)
	if err != nil || footer == nil {
		return size, nil, err
	}
	length, err := strconv.ParseUint(string(footer[len(footerMark):len(footerMark)+8]), 16, 32)
	content = size - int64(footerSize) - int64(length)
	if err != nil || length > maxTrailer || content < 0 {
		return 0, nil, errTrailer
	}
	text := make([]byte, length)
	if err := readAt(f, text, content); err != nil {
		return 0, nil, err
	}
	sum := sha256.Sum256(text)
	if string(footer[len(footerMark)+9:footerSize-1]) != hex.EncodeToString(sum[:]) {
		return 0, nil, errTrailer
	}
	if err := json.Unmarshal(text, &metadata); err != nil {
		return 0, nil, errTrailer
	}
	return content, cloneMetadata(metadata), nil
}

// readFooter returns the footer at the end of a file of this size, or nil if there is none.
func readFooter(f io.ReaderAt, size int64) ([]byte, error) {
	if size < int64(footerSize) {
		return nil, nil
	}
	footer := make([]byte, footerSize)
	if err := readAt(f, footer, size-int64(footerSize)); err != nil {
		return nil, err
	}
	if string(footer[:len(footerMark)]) != footerMark || footer[footerSize-1] != '\n' {
		return nil, nil
	}
	return footer, nil
}

func readAt(f io.ReaderAt, p []byte, offset int64) error {
	_, err := io.ReadFull(io.NewSectionReader(f, offset, int64(len(p))), p)
	return err
}
