package tiles

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

// decodeBudget limits the bytes of pictures that FromDir decodes at a time. The largest picture is decoded alone.
const decodeBudget = 400_000_000

// DirOptions configure [FromDir]. The zero value is ready to use.
type DirOptions struct {
	// Progress is called with the number of pictures that were read, beginning with 0, and the number of
	// all pictures. The calls come one at a time, from any goroutine. Defaults to none.
	Progress func(done, all int)

	// Skipped is called for each file that cannot be used, with its name relative to the folder and an
	// error that does not repeat the name. The calls come one at a time, in the order of names, after
	// all files were read. Defaults to none.
	Skipped func(file string, err error)
}

// pictureExtensions are the file names that are tried, in lower case. Files of the second line cannot be read; they are
// recognised so that the summary can name them.
var pictureExtensions = strings.Fields(`
	.jpg .jpeg .jpe .jfif .png .gif .webp .bmp .dib .tif .tiff
	.heic .heif .hif .avif .jxl .jp2 .j2k .psd .arw .cr2 .cr3 .dng .nef .orf .pef .raf .rw2 .srw`)

// machineFolders hold thumbnails, copies or deleted files that programs put beside photographs.
var machineFolders = []string{"@eadir", "__macosx", "$recycle.bin", "lost+found"}

// found is a file that may be a picture, and what became of it.
type found struct {
	name string // relative to the folder, with slashes
	tile Tile
	err  error
}

// FromDir makes a library of the pictures in a folder and in all folders within it: every regular file, or symbolic link to one,
// whose name ends like that of a picture. Files and folders whose names begin with a dot are not read, nor are folders of
// thumbnails and deleted files that programs make, nor links to folders. The name of a tile is its path relative to the folder,
// with slashes. Of each picture the square in the middle is taken, and scaled to size×size pixels.
//
// A file that cannot be used is skipped: it is counted in the summary and passed to options.Skipped. The
// summary is valid even if there is an error. A nil options is the zero value.
//
// It fails if the folder cannot be read or has no usable picture, if there are too many for a library, or with the cause of ctx.
func FromDir(ctx context.Context, dir string, size int, options *DirOptions) (*Library, DirSummary, error) {
	if options == nil {
		options = &DirOptions{}
	}
	if err := checkSize(size); err != nil {
		return nil, DirSummary{}, err
	}
	files, err := listPictures(ctx, dir)
	summary := DirSummary{Found: len(files), Skipped: map[string]int{}}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, summary, fmt.Errorf("reading tiles: there is no folder %s: %w", dir, fs.ErrNotExist)
	case err != nil:
		return nil, summary, fmt.Errorf("reading tiles from %s: %w", dir, err)
	case len(files) == 0:
		return nil, summary, fmt.Errorf("reading tiles: the folder %s has no pictures: put .jpg, .png, .webp, .tif, .bmp or .gif files into it", dir)
	}
	if err := checkBounds(size, len(files)); err != nil {
		return nil, summary, fmt.Errorf("reading tiles from %s: %w", dir, err)
	}
	if err := readTiles(ctx, dir, size, files, options.Progress); err != nil {
		return nil, summary, fmt.Errorf("reading tiles from %s: %w", dir, err)
	}
	var good []Tile
	for _, f := range files {
		if f.err == nil {
			good = append(good, f.tile)
			continue
		}
		summary.skip(f.err)
		if options.Skipped != nil {
			options.Skipped(f.name, f.err)
		}
	}
	summary.Used = len(good)
	if len(good) == 0 {
		return nil, summary, fmt.Errorf("reading tiles from %s: none of its %d pictures can be used", dir, len(files))
	}
	l, err := New(size, good)
	return l, summary, err
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
	if progress == nil {
		progress = func(int, int) {}
	}
	progress(0, len(files))
	var (
		work    = make(chan *found)
		memory  = semaphore.NewWeighted(decodeBudget)
		workers sync.WaitGroup
		mu      sync.Mutex
		done    int // guarded by mu
	)
	for range min(runtime.GOMAXPROCS(0), len(files)) {
		workers.Go(func() {
			for f := range work {
				if f.err == nil {
					f.tile, f.err = readTile(ctx, filepath.Join(dir, filepath.FromSlash(f.name)), f.name, size, memory)
				}
				mu.Lock()
				done++
				progress(done, len(files))
				mu.Unlock()
			}
		})
	}
	for i := range files {
		if ctx.Err() != nil {
			break
		}
		work <- &files[i]
	}
	close(work)
	workers.Wait()
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

// DirSummary counts what became of the pictures in a folder. The zero value is that of an empty folder.
type DirSummary struct {
	Found   int            // pictures in the folder and those within it
	Used    int            // those that became tiles
	Skipped map[string]int // how many of the rest were of each kind, such as "HEIC" or "damaged"
}

// String is one line for people, such as "612 of 644 used, 32 skipped: 20 HEIC, 12 damaged". The most
// frequent kind comes first.
func (s DirSummary) String() string {
	line := fmt.Sprintf("%d of %d used", s.Used, s.Found)
	kinds := slices.SortedFunc(maps.Keys(s.Skipped), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.Skipped[b], s.Skipped[a]), cmp.Compare(a, b))
	})
	for i, kind := range kinds {
		if i == 0 {
			line += fmt.Sprintf(", %d skipped:", s.Found-s.Used)
		} else {
			line += ","
		}
		line += fmt.Sprintf(" %d %s", s.Skipped[kind], kind)
	}
	return line
}

// skip counts a file by the reason why it is not a tile.
func (s *DirSummary) skip(err error) {
	kind := "unreadable"
	unsupported := (*picture.UnsupportedError)(nil)
	switch {
	case errors.As(err, &unsupported):
		kind = unsupported.Format
	case errors.Is(err, picture.ErrNotPicture):
		kind = "not a picture"
	case errors.Is(err, picture.ErrTooLarge):
		kind = "too large"
	case errors.Is(err, picture.ErrDamaged):
		kind = "damaged"
	case errors.Is(err, fs.ErrPermission):
		kind = "not permitted"
	}
	s.Skipped[kind]++
}
