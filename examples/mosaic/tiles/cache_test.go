package tiles

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// album is a folder of pictures: six good ones, one damaged within its pixels, one of another format.
func album(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for i := range 6 {
		putAt(t, dir, fmt.Sprintf("%d/%d.png", i%2, i), encoded(t, "png", drawn(40+i, 30)))
	}
	whole := encoded(t, "png", drawn(30, 30))
	putAt(t, dir, "damaged.png", whole[:len(whole)-30])
	putAt(t, dir, "phone.heic", []byte("\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic"))
	return dir
}

// fromDir calls FromDir and fails the test if it fails.
func fromDir(t *testing.T, dir string, size int, cacheDir string) (*Library, DirSummary) {
	t.Helper()
	l, summary, err := FromDir(t.Context(), dir, size, &DirOptions{Cache: cacheDir})
	if err != nil {
		t.Fatal(err)
	}
	if summary.CacheErr != nil {
		t.Fatalf("cache: got error %v, want none", summary.CacheErr)
	}
	return l, summary
}

// spoil replaces the content of every file by nonsense, and keeps its size and time of modification, so that a library
// made of it shows that nothing was decoded.
func spoil(t *testing.T, dir string) {
	t.Helper()
	eachFile(t, dir, func(path string, info fs.FileInfo) {
		if err := os.WriteFile(path, bytes.Repeat([]byte{'x'}, int(info.Size())), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
			t.Fatal(err)
		}
	})
}

func eachFile(t *testing.T, dir string, do func(path string, info fs.FileInfo)) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			do(path, info)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestSecondReadingDecodesNothing(t *testing.T) {
	dir, cacheDir := album(t), t.TempDir()
	without, _, err := FromDir(t.Context(), dir, 8, nil)
	if err != nil {
		t.Fatal(err)
	}
	first, summary := fromDir(t, dir, 8, cacheDir)
	if want := "6 of 8 used, 2 skipped: 1 HEIC, 1 damaged"; summary.String() != want || summary.Cached != 0 {
		t.Errorf("first reading: got %q and %d from the cache, want %q and 0", summary, summary.Cached, want)
	}
	spoilt := filepath.Join(dir, "phone.heic") // is recognised each time, without decoding
	kept, err := os.ReadFile(spoilt)
	if err != nil {
		t.Fatal(err)
	}
	spoil(t, dir)
	if err := os.WriteFile(spoilt, kept, 0o600); err != nil {
		t.Fatal(err)
	}
	second, summary := fromDir(t, dir, 8, cacheDir)
	if want := "6 of 8 used, 2 skipped: 1 HEIC, 1 not a picture"; summary.String() != want || summary.Cached != 6 {
		t.Errorf("second reading: got %q and %d from the cache, want %q and 6", summary, summary.Cached, want)
	}
	if first.ID() != without.ID() || second.ID() != first.ID() {
		t.Errorf("libraries: got %.8s without a cache, %.8s and %.8s; want the same", without.ID(), first.ID(), second.ID())
	}
}

func TestCacheNoticesChanges(t *testing.T) {
	dir, cacheDir := album(t), t.TempDir()
	fromDir(t, dir, 8, cacheDir)
	for name, change := range map[string]func(path string, info fs.FileInfo) error{
		"another size": func(path string, info fs.FileInfo) error {
			return errors.Join(os.WriteFile(path, encoded(t, "png", drawn(9, 9)), 0o600), os.Chtimes(path, info.ModTime(), info.ModTime()))
		},
		"another time": func(path string, info fs.FileInfo) error {
			return os.Chtimes(path, info.ModTime(), info.ModTime().Add(time.Nanosecond*1000))
		},
	} {
		path := filepath.Join(dir, "1", "3.png")
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := change(path, info); err != nil {
			t.Fatal(err)
		}
		if _, summary := fromDir(t, dir, 8, cacheDir); summary.Cached != 5 {
			t.Errorf("%s: got %d tiles from the cache, want 5", name, summary.Cached)
		}
		if _, summary := fromDir(t, dir, 8, cacheDir); summary.Cached != 6 {
			t.Errorf("%s, then the same: got %d tiles from the cache, want 6", name, summary.Cached)
		}
	}
	if _, summary := fromDir(t, dir, 9, cacheDir); summary.Cached != 0 {
		t.Errorf("another size of tiles: got %d from the cache, want 0", summary.Cached)
	}
}

func TestDamagedCacheIsReadAnew(t *testing.T) {
	dir := album(t)
	for name, damage := range map[string]func(path string, b []byte) error{
		"empty":    func(path string, _ []byte) error { return os.WriteFile(path, nil, 0o600) },
		"cut off":  func(path string, b []byte) error { return os.WriteFile(path, b[:len(b)/2], 0o600) },
		"changed":  func(path string, b []byte) error { b[len(b)/2] ^= 1; return os.WriteFile(path, b, 0o600) },
		"a folder": func(path string, _ []byte) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
		"removed":  func(path string, _ []byte) error { return os.Remove(path) },
	} {
		cacheDir := t.TempDir()
		first, _ := fromDir(t, dir, 8, cacheDir)
		eachFile(t, cacheDir, func(path string, _ fs.FileInfo) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(path, b); err != nil {
				t.Fatal(err)
			}
		})
		second, summary, err := FromDir(t.Context(), dir, 8, &DirOptions{Cache: cacheDir})
		if err != nil || second.ID() != first.ID() || summary.Cached != 0 {
			t.Errorf("%s: got %v, error %v and %d tiles from the cache, want the same library and 0", name, summary, err, summary.Cached)
		}
	}
}

func TestTwoReadersShareACache(t *testing.T) {
	dir, cacheDir := album(t), t.TempDir()
	var readers sync.WaitGroup
	ids := make([]string, 4)
	for i := range ids {
		readers.Go(func() {
			l, _, err := FromDir(t.Context(), dir, 8, &DirOptions{Cache: cacheDir})
			if err == nil {
				ids[i] = l.ID()
			}
		})
	}
	readers.Wait()
	if _, summary := fromDir(t, dir, 8, cacheDir); summary.Cached != 6 || ids[0] == "" || ids[0] != ids[1] || ids[0] != ids[2] || ids[0] != ids[3] {
		t.Errorf("got libraries %.8q and then %d tiles from the cache, want the same four times and 6", ids, summary.Cached)
	}
}

func TestCacheIsBounded(t *testing.T) {
	dir, cacheDir := album(t), t.TempDir()
	for size := range maxCached + 5 {
		fromDir(t, dir, size+1, cacheDir)
	}
	files := 0
	eachFile(t, cacheDir, func(string, fs.FileInfo) { files++ })
	if files != maxCached {
		t.Errorf("got %d files in the cache, want %d", files, maxCached)
	}
	if _, summary := fromDir(t, dir, maxCached+5, cacheDir); summary.Cached != 6 {
		t.Errorf("the newest: got %d tiles from the cache, want 6", summary.Cached)
	}
}

func TestFromDirWithoutAUsableCache(t *testing.T) {
	dir, file := album(t), filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, summary, err := FromDir(t.Context(), dir, 8, &DirOptions{Cache: file})
	if err != nil || l.Len() != 6 || summary.CacheErr == nil {
		t.Errorf("got %v, error %v and error of the cache %v, want a library and an error of the cache", summary, err, summary.CacheErr)
	}
}
