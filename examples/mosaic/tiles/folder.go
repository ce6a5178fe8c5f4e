package tiles

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

// decodeBudget limits the bytes of pictures that FromDir decodes at a time. The largest picture is decoded alone.
const decodeBudget = 400_000_000

// Skipped is a file that cannot be used.
type Skipped struct {
	Name string // relative to the folder, with slashes
	Err  error  // which does not repeat the name
}

// pictureExtensions are the file names that are tried, in lower case. Files of the second line cannot be read; they are
// recognised so that the user learns of them.
var pictureExtensions = strings.Fields(`
	.jpg .jpeg .jpe .jfif .png .gif .webp .bmp .dib .tif .tiff
	.heic .heif .hif .avif .jxl .jp2 .j2k .psd .arw .cr2 .cr3 .dng .nef .orf .pef .raf .rw2 .srw`)

// machineFolders hold thumbnails, copies or deleted files that programs put beside photographs.
var machineFolders = []string{"@eadir", "__macosx", "$recycle.bin", "lost+found"}

// found is a file that may be a picture, and the result of reading it.
type found struct {
	name string // relative to the folder, with slashes
	tile Tile
	err  error
}

// FromDir makes a library of the pictures in a folder and in all folders within it: every regular
// file, or symbolic link to a file, with an extension of a picture. It skips files and folders with
// a dot at the beginning of their names, folders of thumbnails and of deleted files, and links to
// folders. The name of a tile is its path relative to the folder, with slashes. Of each picture the
// square in the middle is taken, and scaled to size×size pixels.
//
// A file that cannot be used is skipped, and returned even if there is an error. progress is called with the number of
// pictures that were read, beginning with 0, and the number of all pictures. The calls come one at a time, from any goroutine.
//
// It fails if the folder cannot be read or has no usable picture, if there are too many for a library, or with the cause of ctx.
func FromDir(ctx context.Context, dir string, size int, progress func(done, all int)) (*Library, []Skipped, error) {
	if err := checkSize(size); err != nil {
		return nil, nil, err
	}
	files, err := listPictures(ctx, dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, fmt.Errorf("reading tiles: there is no folder %s: %w", dir, fs.ErrNotExist)
	case err == nil && len(files) == 0:
		return nil, nil, fmt.Errorf("reading tiles: the folder %s has no pictures: put .jpg, .png, .webp, .tif, .bmp or .gif files into it", dir)
	case err == nil:
		err = checkBounds(size, len(files))
	}
	if err == nil {
		err = readTiles(ctx, dir, size, files, progress)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading tiles from %s: %w", dir, err)
	}
	var good []Tile
	var skipped []Skipped
	for _, f := range files {
		if f.err != nil {
			skipped = append(skipped, Skipped{f.name, f.err})
		} else {
			good = append(good, f.tile)
		}
	}
	if len(good) == 0 {
		return nil, skipped, fmt.Errorf("reading tiles from %s: none of its %d pictures can be used: the first is %q: %w",
			dir, len(files), files[0].name, files[0].err)
	}
	l, err := New(size, good)
	return l, skipped, err
}

// listPictures lists the pictures in a folder and all folders within it, in the order of their names.
func listPictures(ctx context.Context, dir string) (files []found, err error) {
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, withoutPath(err)
	}
	err = filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(dir, at)
		name := filepath.ToSlash(rel)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && (name == "." || relErr != nil):
			return withoutPath(err)
		case err != nil:
			files = append(files, found{name: name, err: fmt.Errorf("opening the folder: %w", withoutPath(err))})
		case name == ".":
			if !d.IsDir() {
				return errors.New("it is not a folder")
			}
		case d.IsDir() && (d.Name()[0] == '.' || slices.Contains(machineFolders, strings.ToLower(d.Name()))):
			return fs.SkipDir
		case d.IsDir() || d.Name()[0] == '.' || !slices.Contains(pictureExtensions, strings.ToLower(path.Ext(name))):
		case d.Type().IsRegular():
			files = append(files, found{name: name})
		case d.Type() == fs.ModeSymlink:
			// A link to nowhere is kept, so that opening it reports the error.
			if info, err := os.Stat(at); err != nil || info.Mode().IsRegular() {
				files = append(files, found{name: name})
			}
		}
		if len(files) > MaxTiles {
			return fmt.Errorf("it has more than %d pictures: choose a smaller folder", MaxTiles)
		}
		return nil
	})
	slices.SortFunc(files, func(a, b found) int { return cmp.Compare(a.name, b.name) })
	return files, err
}

// readTiles makes the tiles, as many at a time as there are processors and memory permits.
func readTiles(ctx context.Context, dir string, size int, files []found, progress func(done, all int)) error {
	progress(0, len(files))
	memory := semaphore.NewWeighted(decodeBudget)
	var mu sync.Mutex
	done := 0 // guarded by mu
	var readers errgroup.Group
	readers.SetLimit(runtime.GOMAXPROCS(0))
	for i := range files {
		if ctx.Err() != nil {
			break
		}
		readers.Go(func() error {
			if f := &files[i]; f.err == nil {
				f.tile, f.err = readTile(ctx, filepath.Join(dir, filepath.FromSlash(f.name)), f.name, size, memory)
			}
			mu.Lock()
			defer mu.Unlock()
			done++
			progress(done, len(files))
			return nil
		})
	}
	_ = readers.Wait() // a file has its own error
	return context.Cause(ctx)
}

// readTile makes the tile of one file. The header is read first, to learn how much memory the picture needs.
func readTile(ctx context.Context, file, name string, size int, memory *semaphore.Weighted) (Tile, error) {
	if len(name) > maxName {
		return Tile{}, fmt.Errorf("its path within the folder has %d bytes and the limit is %d", len(name), maxName)
	}
	f, err := os.Open(file)
	if err != nil {
		return Tile{}, fmt.Errorf("opening the file: %w", withoutPath(err))
	}
	defer func() { _ = f.Close() }() // nothing was written
	h, err := picture.Inspect(f)
	if err != nil {
		return Tile{}, err
	}
	bytes := min(h.DecodeBytes, decodeBudget)
	if err := memory.Acquire(ctx, bytes); err != nil {
		return Tile{}, context.Cause(ctx)
	}
	defer memory.Release(bytes)
	if _, err := f.Seek(0, 0); err != nil {
		return Tile{}, err
	}
	img, err := picture.Decode(f)
	if err != nil {
		return Tile{}, err
	}
	return tileOf(name, img, size), nil
}

// withoutPath removes the path from an error of package os: the caller reports the name.
func withoutPath(err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p.Err
	}
	return err
}
