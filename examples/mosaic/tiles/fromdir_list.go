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
	"slices"
	"strings"
)

// pictureExtensions are the file names that are tried, in lower case. The value says whether files of that
// name can usually be read; the others are recognised so that the summary can name them.
var pictureExtensions = map[string]bool{
	".jpg": true, ".jpeg": true, ".jpe": true, ".jfif": true, ".png": true, ".gif": true,
	".webp": true, ".bmp": true, ".dib": true, ".tif": true, ".tiff": true,
	".heic": false, ".heif": false, ".hif": false, ".avif": false, ".jxl": false,
	".jp2": false, ".j2k": false, ".psd": false,
	".arw": false, ".cr2": false, ".cr3": false, ".dng": false, ".nef": false, ".orf": false,
	".pef": false, ".raf": false, ".rw2": false, ".srw": false,
}

// machineFolders hold thumbnails, copies or deleted files that programs put beside photographs. Folders
// whose names begin with a dot are skipped anyway.
var machineFolders = map[string]bool{"@eadir": true, "__macosx": true, "$recycle.bin": true, "lost+found": true}

// found is a file that may be a picture.
type found struct {
	name string // relative to the folder, with slashes
	err  error  // of a folder that could not be read
}

// readable reports whether the file counts for the limits of a library.
func (f found) readable() bool {
	return f.err == nil && pictureExtensions[strings.ToLower(path.Ext(f.name))]
}

// lister lists the pictures in a folder and the folders within it.
type lister struct {
	start string          // real path of the root
	seen  map[string]bool // real paths of the folders that were read
	files []found
	links []folder // links to folders: read last, so that the names do not depend on the order
}

// folder is one that is to be read: its name relative to the root, and its real path.
type folder struct{ name, real string }

// listPictures lists the pictures in a folder and all folders within it, sorted by name.
func listPictures(ctx context.Context, dir string) ([]found, error) {
	start, err := realPath(dir)
	if err == nil {
		_, err = os.ReadDir(start)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("reading tiles: there is no folder %s: %w", dir, fs.ErrNotExist)
	case err != nil:
		return nil, fmt.Errorf("reading tiles: %w", err)
	}
	l := &lister{start: start, seen: map[string]bool{}}
	for todo := []folder{{"", start}}; ; {
		for len(todo) > 0 {
			next := todo[len(todo)-1]
			todo = append(todo[:len(todo)-1], l.read(next)...)
			if err := context.Cause(ctx); err != nil {
				return nil, fmt.Errorf("reading tiles from %s: %w", dir, err)
			}
			if len(l.files)+len(l.seen) > maxListed {
				return nil, fmt.Errorf("reading tiles from %s: it has more than %d pictures and folders: choose a smaller folder", dir, maxListed)
			}
		}
		if len(l.links) == 0 {
			break
		}
		todo, l.links = l.links[:1:1], l.links[1:]
	}
	slices.SortFunc(l.files, func(a, b found) int { return cmp.Compare(a.name, b.name) })
	return l.files, nil
}

// maxListed bounds the list of files, of which only [MaxTiles] can become tiles, and the folders that are read for it.
const maxListed = 4 * MaxTiles

// read lists one folder and returns the folders within it. A folder that a link leads back to was read
// before, so a loop of links ends.
func (l *lister) read(f folder) []folder {
	if l.seen[f.real] {
		return nil
	}
	l.seen[f.real] = true
	entries, err := os.ReadDir(f.real)
	if err != nil {
		l.files = append(l.files, found{f.name, fmt.Errorf("opening the folder: %w", withoutPath(err))})
	}
	var within []folder
	for _, e := range entries {
		if ignored(e.Name()) {
			continue
		}
		name := path.Join(f.name, e.Name())
		file := filepath.Join(f.real, e.Name())
		mode := e.Type()
		if mode&fs.ModeSymlink != 0 {
			// A link to nowhere is kept, so that opening it reports the error.
			if info, err := os.Stat(file); err == nil {
				mode = info.Mode().Type()
			}
			if target, err := realPath(file); err == nil && mode.IsDir() {
				l.follow(folder{name, target})
			}
		} else if mode.IsDir() {
			within = append(within, folder{name, file})
		}
		if pictureName(e.Name()) && (mode.IsRegular() || mode&fs.ModeSymlink != 0) {
			l.files = append(l.files, found{name: name})
		}
	}
	return within
}

// realPath is the one absolute path of a file, whatever links lead to it.
func realPath(path string) (string, error) {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	return filepath.Abs(target)
}

// follow notes a link to a folder, which is read later, once. One to a folder around the root, such as /, is not followed: it
// leads to everything that was not named.
func (l *lister) follow(link folder) {
	if inside, err := filepath.Rel(link.real, l.start); err == nil && inside != "." && filepath.IsLocal(inside) {
		l.files = append(l.files, found{link.name, errAround})
		return
	}
	l.links = append(l.links, link)
}

// errAround is the error of a link that is not followed.
var errAround = errors.New("it is a link to a folder around the one that was named")

// pictureName reports whether a name is that of a picture, readable or not.
func pictureName(name string) bool {
	_, ok := pictureExtensions[strings.ToLower(path.Ext(name))]
	return ok
}

// ignored reports whether a file or folder is not read because of its name.
func ignored(name string) bool {
	return strings.HasPrefix(name, ".") || machineFolders[strings.ToLower(name)]
}

// withoutPath removes the path from an error of package os: the caller reports the name.
func withoutPath(err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p.Err
	}
	return err
}
