package tiles

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

const (
	// cacheFolder is created within the folder of the user. Its number changes with the way tiles are made.
	cacheFolder = "mosaic-tiles-2"

	// maxCached is how many libraries are kept. The oldest goes first.
	maxCached = 10
)

// cache keeps the tiles of one folder, in one size, for the next run: a line of JSON with the versions of the files, and the
// library. What is read is not trusted: a damaged file is as good as none.
type cache struct{ path string } // "" for none

func newCache(cacheDir, dir string, size int) cache {
	whole, err := filepath.Abs(dir)
	if cacheDir == "" || err != nil {
		return cache{}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d", whole, size))
	return cache{filepath.Join(cacheDir, cacheFolder, hex.EncodeToString(sum[:]))}
}

// version identifies the content of a file: its size and time of modification. It is "" for a file that cannot be read.
func version(dir, name string) string {
	info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d %d", info.Size(), info.ModTime().UnixNano())
}

// fill gives the files their tiles, if they are as they were when the tiles were made. It returns how many.
func (c cache) fill(dir string, size int, files []found) (n int) {
	f, err := os.Open(c.path)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }() // nothing was written
	r := bufio.NewReader(f)
	line, err := r.ReadBytes('\n')
	var versions map[string]string
	if err != nil || json.Unmarshal(line, &versions) != nil {
		return 0
	}
	l, err := Read(r)
	if err != nil || l.size != size {
		return 0
	}
	for i := range files {
		f := &files[i]
		at, ok := slices.BinarySearchFunc(l.tiles, f.name, func(t Tile, name string) int { return cmp.Compare(t.Name, name) })
		if v := version(dir, f.name); ok && v != "" && versions[f.name] == v {
			f.tile = l.tiles[at]
			n++
		}
	}
	return n
}

// keep writes the library beside its place and renames it, so that any number of programs may use the cache and be killed at
// any time. The versions are those before the files were read: a file that changed meanwhile is read again.
func (c cache) keep(versions map[string]string, l *Library) error {
	if c.path == "" {
		return nil
	}
	folder := filepath.Dir(c.path)
	err := os.MkdirAll(folder, 0o700)
	if err == nil {
		err = replace(c.path, func(w io.Writer) error {
			return cmp.Or(json.NewEncoder(w).Encode(versions), l.Write(w))
		})
	}
	if err != nil {
		return fmt.Errorf("keeping the tiles for the next run: %w", err)
	}
	entries, _ := os.ReadDir(folder) // at worst nothing is removed
	age := func(e os.DirEntry) int64 {
		if info, err := e.Info(); err == nil {
			return -info.ModTime().UnixNano()
		}
		return 0
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return cmp.Compare(age(a), age(b)) })
	for _, e := range entries[min(maxCached, len(entries)):] {
		_ = os.Remove(filepath.Join(folder, e.Name()))
	}
	return nil
}

// replace writes a file as a whole or not at all.
func replace(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "*.new")
	if err != nil {
		return err
	}
	err = write(f)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
