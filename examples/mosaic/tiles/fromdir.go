package tiles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

// decodeBudget limits the bytes of pictures that FromDir decodes at a time. Ten photographs of 12
// megapixels fit; the largest permitted picture is decoded alone.
const decodeBudget = 400_000_000

// FromDir makes a library of the pictures in a folder: every regular file, or
// symbolic link to one, whose name ends in .jpg, .jpeg, .png or .gif in upper
// or lower case. Folders within it are not read. Of each picture the square in
// the middle is taken, and scaled to size×size pixels.
//
// A file that cannot be used is skipped and passed to report, with an error
// that does not repeat the name. The calls come one at a time, in the order of
// names, after all files were read; report may be nil.
//
// The files are read in parallel, as many at a time as there are processors and
// memory permits. It fails if the folder cannot be read or has no usable
// picture, if there are too many for a library, or with the cause of ctx.
func FromDir(ctx context.Context, dir string, size int, report func(file string, err error)) (*Library, error) {
	if err := checkSize(size); err != nil {
		return nil, err
	}
	names, err := pictureNames(dir)
	if err != nil {
		return nil, err
	}
	if err := checkBounds(size, len(names)); err != nil {
		return nil, fmt.Errorf("reading tiles from %s: %w", dir, err)
	}

	tiles := make([]Tile, len(names))
	errs := make([]error, len(names))
	work := make(chan int)
	memory := newBudget(decodeBudget)
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(names)) {
		workers.Go(func() {
			for i := range work {
				tiles[i], errs[i] = fromFile(filepath.Join(dir, names[i]), size, memory)
			}
		})
	}
feed:
	for i := range names {
		select {
		case work <- i:
		case <-ctx.Done():
			break feed
		}
	}
	close(work)
	workers.Wait()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("reading tiles from %s: %w", dir, context.Cause(ctx))
	}

	good := tiles[:0]
	for i, err := range errs {
		switch {
		case err == nil:
			good = append(good, tiles[i])
		case report != nil:
			report(names[i], err)
		}
	}
	if len(good) == 0 {
		return nil, fmt.Errorf("reading tiles from %s: none of its %d pictures can be used", dir, len(names))
	}
	return New(size, good)
}

// pictureNames lists the pictures in a folder by their names, sorted.
func pictureNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("reading tiles: there is no folder %s: %w", dir, fs.ErrNotExist)
	case err != nil:
		return nil, fmt.Errorf("reading tiles: %w", err)
	}
	var names []string
	for _, e := range entries {
		switch strings.ToLower(filepath.Ext(e.Name())) {
		case ".jpg", ".jpeg", ".png", ".gif":
		default:
			continue
		}
		// Stat follows links. A dangling link is kept, so that opening it reports the error.
		if info, err := os.Stat(filepath.Join(dir, e.Name())); err != nil || info.Mode().IsRegular() {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("reading tiles: the folder %s has no pictures: put .jpg, .png or .gif files into it", dir)
	}
	return names, nil
}

// fromFile makes one tile. The file is opened twice: first to learn how much
// memory it needs.
func fromFile(path string, size int, memory *budget) (Tile, error) {
	var h picture.Header
	err := reading(path, func(f *os.File) (err error) {
		h, err = picture.Inspect(f)
		return err
	})
	if err != nil {
		return Tile{}, err
	}
	defer memory.give(memory.take(h.DecodeBytes))
	var t Tile
	err = reading(path, func(f *os.File) error {
		img, err := picture.Decode(f)
		if err != nil {
			return err
		}
		t, err = fromImage(filepath.Base(path), img, size)
		return err
	})
	return t, err
}

// reading opens a file, calls use and closes it. Its own errors omit the path, which the caller
// reports.
func reading(path string, use func(f *os.File) error) error {
	f, err := os.Open(path)
	if err != nil {
		var p *fs.PathError
		if errors.As(err, &p) {
			err = p.Err
		}
		return fmt.Errorf("opening the file: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	return use(f)
}
