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

// checkFile returns [ErrCorrupt] unless a file is a sound file of tables, or [ErrNewer].
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
	return checkPages(f, info.Size())
}

// checkPages reads every page. A disk that fails is not damage: the commit before, which
// a reader falls back to, would lack confirmed changes.
func checkPages(f io.ReaderAt, size int64) error {
	file, err := boltfile.NewReader(f, size)
	if errors.Is(err, boltfile.ErrNoMeta) {
		return corrupt("the file is not one of tables, or its beginning is damaged")
	}
	if err != nil {
		return fmt.Errorf("%w; check the disk", err)
	}
	err = checkCommit(file, size)
	if failed := file.ReadError(); failed != nil {
		return fmt.Errorf("%w; check the disk", failed)
	}
	return err
}

func checkCommit(file *boltfile.Reader, size int64) error {
	if file.Truncated() {
		return corrupt("the file is truncated: it has %d bytes and needs %d pages of %d", size, file.Meta.High, file.Meta.PageSize)
	}
	if err := file.CheckFreelist(); err != nil { // this package writes none, but other tools of bbolt do
		return corrupt("the list of free pages: %v", err)
	}
	buckets, err := file.Buckets()
	if err != nil {
		return corrupt("the root: %v", err)
	}
	i := slices.IndexFunc(buckets, func(b boltfile.Bucket) bool { return bytes.Equal(b.Name, aboutBucket) })
	if i < 0 {
		return corrupt("the file is a bbolt file of another program, not one of tables")
	}
	if err := checkAbout(file, buckets[i]); err != nil {
		return err
	}
	tables := slices.Delete(buckets, i, i+1)
	for _, b := range tables {
		if !strings.HasPrefix(string(b.Name), tablePrefix) {
			return corrupt("the file has the bucket %q, which is no table", b.Name)
		}
	}
	for _, b := range tables {
		if err := file.Walk(b, plain, boltfile.Stop); err != nil {
			return corrupt("the bucket %q: %v", b.Name, err)
		}
	}
	return nil
}

// checkAbout checks what the file says of itself, before anything that another format may have otherwise.
func checkAbout(file *boltfile.Reader, about boltfile.Bucket) error {
	found, within := map[string][]byte{}, error(nil)
	remember := func(e boltfile.Entry) error {
		if within == nil {
			within = plain(e)
		}
		found[string(e.Key)] = bytes.Clone(e.Value)
		return nil
	}
	if err := file.Walk(about, remember, boltfile.Stop); err != nil {
		return corrupt("the bucket %q: %v", about.Name, err)
	}
	is, err := readNumber(formatKey, found[string(formatKey)])
	if err != nil {
		return err
	}
	if is > format {
		return fmt.Errorf("the file %w: its format is %d, and this program knows those up to %d", ErrNewer, is, format)
	}
	if within != nil {
		return corrupt("the bucket %q: %v", about.Name, within)
	}
	_, err = readNumber(versionKey, found[string(versionKey)])
	return err
}

func plain(e boltfile.Entry) error {
	if e.Bucket {
		return errors.New("it has a bucket within")
	}
	return nil
}
