package filetable

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/boltfile"
)

// checkFile returns [ErrCorrupt] unless a file is a sound file of tables, or [ErrNewer]. If its newest commit was
// interrupted, the one before is checked, and the newest one is discarded.
func checkFile(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return corrupt("it is no file")
	}
	if info.Size() == 0 {
		return corrupt("the file is empty: it was truncated, or is not one of tables; delete it to begin with no tables")
	}
	newest, undone, err := checkPages(f, info.Size())
	if err == nil && undone {
		err = discard(f, newest)
	}
	return err
}

// checkPages reads every page, and returns the newest commit and whether it was interrupted. A disk that fails is not
// damage: the commit before, which a reader falls back to, would lack confirmed changes.
func checkPages(f io.ReaderAt, size int64) (newest boltfile.Meta, undone bool, err error) {
	file, err := boltfile.NewReader(f, size)
	if errors.Is(err, boltfile.ErrNoMeta) {
		return newest, false, corrupt("the file is not one of tables, or its beginning is damaged")
	}
	if err != nil {
		return newest, false, fmt.Errorf("%w; check the disk", err)
	}
	newest = file.Meta
	undone, err = checkNewest(file, size)
	if failed := file.ReadError(); failed != nil {
		return newest, false, fmt.Errorf("%w; check the disk", failed)
	}
	return newest, undone, err
}

// checkNewest checks the newest commit, or the one before if the newest was interrupted.
func checkNewest(file *boltfile.Reader, size int64) (undone bool, err error) {
	is, lost, err := standingOf(file, file.Meta)
	switch undone = is == interrupted; {
	case err != nil:
		return false, corrupt("its beginning: %v", err)
	case lost:
		return false, corrupt("its newest commit is damaged, although it was on disk: restore the file from a backup")
	case undone && !file.FallBack():
		return false, corrupt("its newest commit is damaged, and the one before cannot be read")
	}
	was, err := checkCommit(file, size)
	if err == nil && is == unsealed && was > unsealedFormat && !file.Whole() {
		err = corrupt("its newest commit has no seal, and the one before cannot be read")
	}
	return undone, err
}

// checkCommit checks a commit, and returns its format.
func checkCommit(file *boltfile.Reader, size int64) (is uint64, err error) {
	if file.Truncated() {
		return 0, corrupt("the file is truncated: it has %d bytes and needs %d pages of %d", size, file.Meta.High, file.Meta.PageSize)
	}
	if err := file.CheckFreelist(); err != nil { // this package writes none, but other tools of bbolt do
		return 0, corrupt("the list of free pages: %v", err)
	}
	buckets, err := file.Buckets()
	if err != nil {
		return 0, corrupt("the root: %v", err)
	}
	i := slices.IndexFunc(buckets, func(b boltfile.Bucket) bool { return bytes.Equal(b.Name, aboutBucket) })
	if i < 0 {
		return 0, corrupt("the file is a bbolt file of another program, not one of tables")
	}
	if is, err = checkAbout(file, buckets[i]); err != nil {
		return 0, err
	}
	tables := slices.Delete(buckets, i, i+1)
	for _, b := range tables {
		if !strings.HasPrefix(string(b.Name), tablePrefix) {
			return 0, corrupt("the file has the bucket %q, which is no table", b.Name)
		}
	}
	for _, b := range tables {
		if err := file.Walk(b, plain, boltfile.Stop); err != nil {
			return 0, corrupt("the bucket %q: %v", b.Name, err)
		}
	}
	return is, nil
}

// checkAbout checks what the file says of itself, before anything that another format may have otherwise, and returns its
// format.
func checkAbout(file *boltfile.Reader, about boltfile.Bucket) (is uint64, err error) {
	found, within := map[string][]byte{}, error(nil)
	remember := func(e boltfile.Entry) error {
		if within == nil {
			within = plain(e)
		}
		found[string(e.Key)] = bytes.Clone(e.Value)
		return nil
	}
	if err := file.Walk(about, remember, boltfile.Stop); err != nil {
		return 0, corrupt("the bucket %q: %v", about.Name, err)
	}
	is, err = readNumber(formatKey, found[string(formatKey)])
	if err != nil {
		return 0, err
	}
	if is > format {
		return 0, fmt.Errorf("the file %w: its format is %d, and this program knows those up to %d", ErrNewer, is, format)
	}
	if within != nil {
		return 0, corrupt("the bucket %q: %v", about.Name, within)
	}
	_, err = readNumber(versionKey, found[string(versionKey)])
	return is, err
}

func plain(e boltfile.Entry) error {
	if e.Bucket {
		return errors.New("it has a bucket within")
	}
	return nil
}
