package tiles

import (
	"context"
	"fmt"
	"image"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

// decodeBudget limits the bytes of pictures that FromDir decodes at a time. Ten photographs of 12
// megapixels fit; the largest permitted picture is decoded alone.
const decodeBudget = 400_000_000

// DirOptions configure [FromDir]. The zero value is ready to use.
type DirOptions struct {
	// Cache is a folder in which tiles and previews are kept, so that a later call need not decode a
	// picture again that has the same path, size and time of modification. It is created if it does not
	// exist. Any number of programs may use it at once. Its files take at most about 1 GiB: those that were not used
	// for longest are dropped. [DirPreviews] needs the same folder. Defaults to none.
	Cache string

	// Progress is called with the number of pictures that were read, beginning with 0, and the number of
	// all pictures. The calls come one at a time, from any goroutine. Defaults to none.
	Progress func(done, all int)

	// Skipped is called for each file that cannot be used, with its name relative to the folder and an
	// error that does not repeat the name. The calls come one at a time, in the order of names, after
	// all files were read. Defaults to none.
	Skipped func(file string, err error)
}

// FromDir makes a library of the pictures in a folder and in all folders within it: every regular file, or
// symbolic link to one, whose name ends like that of a picture (.jpg, .png, .gif, .webp, .bmp, .tif and their
// variants, and .heic and others only to count them), in upper or lower case. Files and folders whose names begin with
// a dot are not read, nor are folders of thumbnails and deleted files that programs make (@eaDir, __MACOSX, $RECYCLE.BIN,
// lost+found). Links to folders are followed, but for those to a folder around dir, such as /, which are
// counted as skipped; each folder is read once, however many links lead to it. The
// name of a tile is its path relative to the folder, with slashes. Of each picture the square in
// the middle is taken, and scaled to size×size pixels.
//
// A file that cannot be used is skipped: it is counted in the summary and passed to options.Skipped. The
// summary is valid also if there is an error. A nil options is the zero value.
//
// The files are read in parallel, as many at a time as there are processors and
// memory permits. It fails if the folder cannot be read or has no usable
// picture, if there are too many for a library, or with the cause of ctx.
func FromDir(ctx context.Context, dir string, size int, options *DirOptions) (*Library, DirSummary, error) {
	if options == nil {
		options = &DirOptions{}
	}
	if err := checkSize(size); err != nil {
		return nil, DirSummary{}, err
	}
	files, err := listPictures(ctx, dir)
	if err != nil {
		return nil, DirSummary{}, err
	}
	summary := DirSummary{Found: len(files)}
	if len(files) == 0 {
		return nil, summary, fmt.Errorf("reading tiles: the folder %s has no pictures: put .jpg, .png, .webp, .tif, .bmp or .gif files into it", dir)
	}
	candidates := 0
	for _, f := range files {
		if f.readable() {
			candidates++
		}
	}
	if err := checkBounds(size, max(candidates, 1)); err != nil {
		return nil, summary, fmt.Errorf("reading tiles from %s: %w", dir, err)
	}
	d := &dirReader{dir: dir, size: size, files: files, progress: options.Progress, memory: newBudget(decodeBudget)}
	if options.Cache != "" {
		d.cache, summary.CacheErr = openCache(options.Cache)
	}
	err = d.read(ctx)
	if d.cache != nil {
		summary.CacheErr = d.cache.close()
	}
	if err != nil {
		return nil, summary, fmt.Errorf("reading tiles from %s: %w", dir, err)
	}
	good := make([]Tile, 0, candidates)
	for i, o := range d.outcomes {
		if o.err == nil {
			good = append(good, o.tile)
			if o.ignored {
				summary.ProfilesIgnored++
			}
			continue
		}
		summary.skip(o.err)
		if options.Skipped != nil {
			options.Skipped(files[i].name, o.err)
		}
	}
	summary.Used, summary.Cached = len(good), int(d.cached.Load())
	if len(good) == 0 {
		return nil, summary, fmt.Errorf("reading tiles from %s: none of its %d pictures can be used", dir, len(files))
	}
	l, err := New(size, good)
	return l, summary, err
}

// dirReader makes the tiles of one call of FromDir.
type dirReader struct {
	dir    string
	size   int
	files  []found
	memory *budget
	cache  *cache // nil for none

	outcomes []outcome // one for each file
	cached   atomic.Int64

	mu       sync.Mutex
	progress func(done, all int)
	done     int // guarded by mu, as are the calls of progress
}

// read makes all tiles, several at a time. It returns the cause of ctx if that ends first.
func (d *dirReader) read(ctx context.Context) error {
	d.outcomes = make([]outcome, len(d.files))
	if d.progress != nil {
		d.progress(0, len(d.files))
	}
	work := make(chan int)
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(d.files)) {
		workers.Go(func() {
			for i := range work {
				d.outcomes[i] = d.outcome(ctx, d.files[i])
				d.report()
			}
		})
	}
feed:
	for i := range d.files {
		select {
		case work <- i:
		case <-ctx.Done():
			break feed
		}
	}
	close(work)
	workers.Wait()
	return context.Cause(ctx)
}

func (d *dirReader) report() {
	if d.progress == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done++
	d.progress(d.done, len(d.files))
}

// outcome makes the tile of one file, or takes it from the cache.
func (d *dirReader) outcome(ctx context.Context, f found) outcome {
	switch {
	case f.err != nil:
		return outcome{err: f.err}
	case len(f.name) > maxName:
		return outcome{err: fmt.Errorf("its path within the folder has %d bytes and the limit is %d", len(f.name), maxName)}
	}
	path := absolute(d.dir, f.name)
	if d.cache == nil {
		return d.fromFile(ctx, path, f.name)
	}
	// The file is asked for its version before it is read. If it changes meanwhile, the entry is for a version that
	// is gone, and never found.
	info, err := os.Stat(path)
	if err != nil {
		return d.fromFile(ctx, path, f.name) // which reports why
	}
	place := d.cache.place("tile", path, d.size)
	if o, ok := unmarshalOutcome(d.cache.get(place), info, f.name, d.size); ok {
		if o.err == nil {
			d.cached.Add(1)
		}
		return o
	}
	o := d.fromFile(ctx, path, f.name)
	if entry := o.marshal(info); entry != nil {
		d.cache.put(place, entry)
	}
	return o
}

// fromFile makes the tile of a picture, and its preview if there is a cache to keep it.
func (d *dirReader) fromFile(ctx context.Context, path, name string) (o outcome) {
	o.err = decoding(ctx, path, d.memory, func(h picture.Header, img image.Image) (err error) {
		o.ignored = h.ProfileIgnored != ""
		if o.tile, err = fromImage(name, img, d.size); err != nil || d.cache == nil {
			return err
		}
		preview, err := newPreview(img)
		if err == nil {
			d.cache.put(d.cache.place("preview", path), preview)
		}
		return err
	})
	return o
}

// decoding calls use with the picture in a file. The file is opened twice: first to learn how much
// memory it needs. If ctx has ended once that is free, nobody waits for the picture any more, and the error is the cause.
func decoding(ctx context.Context, path string, memory *budget, use func(h picture.Header, img image.Image) error) error {
	var h picture.Header
	err := reading(path, func(f *os.File) (err error) {
		h, err = picture.Inspect(f)
		return err
	})
	if err != nil {
		return err
	}
	defer memory.give(memory.take(h.DecodeBytes))
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return reading(path, func(f *os.File) error {
		img, err := picture.Decode(f)
		if err != nil {
			return err
		}
		return use(h, img)
	})
}

// reading opens a file, calls use and closes it. Its own errors omit the path, which the caller
// reports.
func reading(path string, use func(f *os.File) error) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening the file: %w", withoutPath(err))
	}
	defer func() { _ = f.Close() }() // nothing was written
	return use(f)
}
