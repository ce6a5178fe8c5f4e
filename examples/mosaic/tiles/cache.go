package tiles

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"
)

const (
	// cacheFolder is created within the folder of the user. Its number changes with the form of the entries and with
	// the way tiles are made, so that no program reads what another version made.
	cacheFolder = "mosaic-tiles-1"

	// maxCache bounds the files of a cache. The entries of 10,000 photographs take some 500 MB, nearly all of
	// them previews.
	maxCache = 1 << 30

	// fileUnit is what the smallest file takes on a disk, in bytes.
	fileUnit = 4 << 10

	// maxEntry is larger than any entry.
	maxEntry = 1 << 20

	// touchAfter is how long after its last use an entry is marked as used again.
	touchAfter = 24 * time.Hour

	// abandonedAfter is when a file that is still being written belongs to a program that was killed.
	abandonedAfter = time.Hour
)

// cache keeps what was made of pictures in a folder: a file for each entry, named by a hash, so that nothing in a
// name becomes a path. An entry is written beside its place and renamed, so that any number of programs may
// use the folder and be killed at any time. Nothing that is read is trusted: a damaged entry is as good as none. It
// is safe for concurrent use.
type cache struct {
	dir   string
	limit int64 // of all files, in bytes on the disk

	mu      sync.Mutex
	unswept int64 // bytes on the disk that were written since the last sweep; guarded by mu
	err     error // the first failure to write; guarded by mu
}

func openCache(dir string) (*cache, error) {
	path := filepath.Join(dir, cacheFolder)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("making the cache of tiles: %w", err)
	}
	return &cache{dir: path, limit: maxCache}, nil
}

// entryName is how the files of entries look below the folder of the cache, by which sweep tells them from others.
var entryName = regexp.MustCompile(`^[0-9a-f]{64}\.(tile|preview)$`)

// place is the path of an entry: its kind is "tile" or "preview", what names it uniquely within the kind.
func (c *cache) place(kind string, what ...any) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", kind, what))
	name := hex.EncodeToString(sum[:])
	return filepath.Join(c.dir, name[:2], name+"."+kind)
}

// get returns the content of an entry, or nil if there is none or it is damaged.
func (c *cache) get(place string) []byte {
	f, err := os.Open(place)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }() // nothing was written
	b, err := io.ReadAll(io.LimitReader(f, maxEntry+1))
	if err != nil || len(b) < checksumLen || len(b) > maxEntry {
		return nil
	}
	content := b[:len(b)-checksumLen]
	if !bytes.Equal(checksum(content), b[len(content):]) {
		return nil
	}
	if info, err := f.Stat(); err == nil && time.Since(info.ModTime()) > touchAfter {
		now := time.Now()
		_ = os.Chtimes(place, now, now) // at worst it is dropped too early
	}
	return content
}

const checksumLen = 4

func checksum(b []byte) []byte {
	sum := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	return []byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}
}

// put writes an entry. A failure is kept, because the caller has what it wanted to store. A program may write for hours
// before it closes the cache, or never close it, so a tenth of the limit is followed by a sweep.
func (c *cache) put(place string, content []byte) {
	err := c.write(place, content)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unswept += onDisk(int64(len(content)) + checksumLen)
	if c.unswept > c.limit/10 {
		c.sweep()
	}
	if err != nil && c.err == nil {
		c.err = fmt.Errorf("writing to the cache of tiles: %w", err)
	}
}

// onDisk is about what a file of n bytes takes on a disk.
func onDisk(n int64) int64 { return (n + fileUnit - 1) / fileUnit * fileUnit }

func (c *cache) write(place string, content []byte) error {
	if len(content)+checksumLen > maxEntry {
		return errors.New("an entry is too large")
	}
	folder := filepath.Dir(place)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(folder, "*.new")
	if err != nil {
		return err
	}
	_, err = f.Write(append(slices.Clip(content), checksum(content)...))
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), place)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// close drops old entries if some were written, and returns the first failure to write.
func (c *cache) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unswept > 0 {
		c.sweep()
	}
	return c.err
}

// sweep drops the entries that were not used for longest while there are too many bytes, down to nine tenths of the
// limit, and what killed programs left. Another program may do the same at the same time. c.mu is held.
func (c *cache) sweep() {
	c.unswept = 0
	type entry struct {
		path string
		info fs.FileInfo
	}
	var (
		entries []entry
		total   int64
	)
	_ = filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // what cannot be listed is not swept
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // another program removed it
		}
		switch {
		case filepath.Ext(path) == ".new" && time.Since(info.ModTime()) > abandonedAfter:
			_ = os.Remove(path)
		case entryName.MatchString(d.Name()):
			entries = append(entries, entry{path, info})
			total += onDisk(info.Size())
		}
		return nil
	})
	if total <= c.limit {
		return
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(a.info.ModTime().Compare(b.info.ModTime()), cmp.Compare(a.path, b.path))
	})
	for _, e := range entries {
		if total <= c.limit/10*9 {
			return
		}
		if os.Remove(e.path) == nil {
			total -= onDisk(e.info.Size())
		}
	}
}
