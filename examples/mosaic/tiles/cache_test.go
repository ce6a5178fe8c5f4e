package tiles

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/examples/mosaic/picture"
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

func entries(t *testing.T, cacheDir, ext string) (paths []string) {
	t.Helper()
	eachFile(t, cacheDir, func(path string, info fs.FileInfo) {
		if filepath.Ext(path) == ext {
			paths = append(paths, path)
		}
	})
	return paths
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
	if want := "6 of 8 used, 2 skipped: 1 HEIC, 1 damaged"; summary.String() != want || summary.Cached != 6 {
		t.Errorf("second reading: got %q and %d from the cache, want %q and 6", summary, summary.Cached, want)
	}
	if first.ID() != without.ID() || second.ID() != first.ID() {
		t.Errorf("libraries: got %.8s without a cache, %.8s and %.8s; want the same", without.ID(), first.ID(), second.ID())
	}
	var skipped error
	_, _, err = FromDir(t.Context(), dir, 8, &DirOptions{Cache: cacheDir, Skipped: func(file string, err error) {
		if file == "damaged.png" {
			skipped = err
		}
	}})
	if err != nil || !errors.Is(skipped, picture.ErrDamaged) || !strings.Contains(skipped.Error(), "png") {
		t.Errorf("damage from the cache: got %v, want the error of the decoder", skipped)
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
		"empty":     func(path string, _ []byte) error { return os.WriteFile(path, nil, 0o600) },
		"cut off":   func(path string, b []byte) error { return os.WriteFile(path, b[:len(b)/2], 0o600) },
		"two bytes": func(path string, b []byte) error { return os.WriteFile(path, b[:2], 0o600) },
		"changed":   func(path string, b []byte) error { b[len(b)/2] ^= 1; return os.WriteFile(path, b, 0o600) },
		"longer":    func(path string, b []byte) error { return os.WriteFile(path, append(b, 0), 0o600) },
		"very long": func(path string, b []byte) error { return os.WriteFile(path, make([]byte, maxEntry+1), 0o600) },
		"a folder":  func(path string, _ []byte) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
		"removed":   func(path string, _ []byte) error { return os.Remove(path) },
		"no mean": func(path string, b []byte) error {
			return rewrite(path, b, func(b []byte) { copy(b[versionLen+1:], "\xff\xff\xff\xff\xff\xff\xff\xff") })
		},
		"other kind": func(path string, b []byte) error { return rewrite(path, b, func(b []byte) { b[versionLen] = 9 }) },
	} {
		t.Run(name, func(t *testing.T) {
			cacheDir := t.TempDir()
			first, _ := fromDir(t, dir, 8, cacheDir)
			for _, path := range append(entries(t, cacheDir, ".tile"), entries(t, cacheDir, ".preview")...) {
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := damage(path, b); err != nil {
					t.Fatal(err)
				}
			}
			second, summary, err := FromDir(t.Context(), dir, 8, &DirOptions{Cache: cacheDir})
			if err != nil || second.ID() != first.ID() || summary.Cached != 0 {
				t.Errorf("got %v, error %v and %d tiles from the cache, want the same library and 0", summary, err, summary.Cached)
			}
			b, err := DirPreviews(dir, cacheDir).Open(t.Context(), "1/1.png")
			if err != nil {
				t.Fatal(err)
			}
			if img, err := jpeg.Decode(bytes.NewReader(b)); err != nil || img.Bounds() != image.Rect(0, 0, 41, 30) {
				t.Errorf("preview: got error %v, want a picture of 41×30", err)
			}
		})
	}
}

// rewrite changes the content of an entry and makes its checksum right.
func rewrite(path string, b []byte, change func([]byte)) error {
	b = b[:len(b)-checksumLen]
	change(b)
	return os.WriteFile(path, append(b, checksum(b)...), 0o600)
}

// Two programs that read the same folder with the same cache get what one gets.
func TestTwoReadersShareACache(t *testing.T) {
	dir, cacheDir := album(t), t.TempDir()
	want, _, err := FromDir(t.Context(), dir, 8, nil)
	if err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			l, summary, err := FromDir(t.Context(), dir, 8, &DirOptions{Cache: cacheDir})
			if err != nil || l.ID() != want.ID() || summary.CacheErr != nil {
				t.Errorf("got %v, errors %v and %v; want the same library", summary, err, summary.CacheErr)
			}
		})
	}
	readers.Wait()
	if left := entries(t, cacheDir, ".new"); len(left) > 0 {
		t.Errorf("unfinished files: got %q, want none", left)
	}
	if got := len(entries(t, cacheDir, ".tile")); got != 7 {
		t.Errorf("entries of tiles: got %d, want 7 with the damaged one", got)
	}
}

func TestCacheIsBounded(t *testing.T) {
	dir := t.TempDir()
	c, err := openCache(dir)
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-48 * time.Hour)
	for i := range 20 {
		place := c.place("preview", i)
		c.put(place, make([]byte, 996))
		when := old.Add(time.Duration(i) * time.Minute)
		if err := os.Chtimes(place, when, when); err != nil {
			t.Fatal(err)
		}
	}
	if c.get(c.place("preview", 2)) == nil { // which marks it as used
		t.Fatal("entry 2: got none")
	}
	foreign := filepath.Join(c.dir, "00", "holiday.jpg") // not ours
	young, abandoned := filepath.Join(c.dir, "a.new"), filepath.Join(c.dir, "b.new")
	putAt(t, c.dir, "00/holiday.jpg", make([]byte, 50_000))
	putAt(t, c.dir, "a.new", []byte("being written"))
	putAt(t, c.dir, "b.new", []byte("killed"))
	for _, path := range []string{foreign, abandoned} {
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	c.limit = 10 * fileUnit
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if got, want := c.get(c.place("preview", i)) != nil, i == 2 || i >= 12; got != want {
			t.Errorf("entry %d is kept: got %t, want %t", i, got, want)
		}
	}
	for path, want := range map[string]bool{foreign: true, young: true, abandoned: false} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s is kept: got %t, want %t", filepath.Base(path), err == nil, want)
		}
	}
}

// A long run, one that is killed, and previews that are asked for one by one never close the cache.
func TestCacheIsBoundedBeforeItIsClosed(t *testing.T) {
	dir := t.TempDir()
	c, err := openCache(dir)
	if err != nil {
		t.Fatal(err)
	}
	c.limit = 10 * fileUnit
	for i := range 100 {
		c.put(c.place("preview", i), make([]byte, 900))
	}
	if got := len(entries(t, dir, ".preview")); got < 5 || got > 12 {
		t.Errorf("entries: got %d, want 5 to 12", got)
	}
}

// A cache that cannot be written costs time, not the library.
func TestFromDirWithoutAUsableCache(t *testing.T) {
	dir := album(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	blocked := t.TempDir()
	for i := range 256 { // in the place of each folder of entries is a file
		putAt(t, filepath.Join(blocked, cacheFolder), fmt.Sprintf("%02x", i), nil)
	}
	for _, cacheDir := range []string{file, blocked} {
		l, summary, err := FromDir(t.Context(), dir, 8, &DirOptions{Cache: cacheDir})
		if err != nil || l.Len() != 6 || summary.CacheErr == nil {
			t.Errorf("got %v, error %v and cache error %v; want a library and a cache error", l, err, summary.CacheErr)
		}
	}
}

func FuzzUnmarshalOutcome(f *testing.F) {
	info := fileInfo{}
	good := outcome{tile: Tile{Name: "x", Pix: bytes.Repeat([]byte{1, 2, 3, 255}, 4)}}
	f.Add(good.marshal(info))
	f.Add(outcome{err: picture.ErrDamaged}.marshal(info))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, ok := unmarshalOutcome(b, info, "x", 2)
		if ok && o.err == nil {
			if _, err := New(2, []Tile{o.tile}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// fileInfo is of a file of no size and no time.
type fileInfo struct{ fs.FileInfo }

func (fileInfo) Size() int64        { return 0 }
func (fileInfo) ModTime() time.Time { return time.Unix(0, 0) }
