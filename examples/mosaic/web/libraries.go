package web

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path"
	"path/filepath"
	"sync"

	"github.com/millrace/millrace/examples/mosaic/tiles"
)

// generated is the key of the library that is painted by the program.
const generated = "generated"

// libraries are the libraries that a user may choose. It is safe for concurrent use.
type libraries struct {
	shelf  *shelf
	logger *slog.Logger
	cache  string        // path of the folder of cached tiles
	turn   chan struct{} // held while a library is made, which takes all processors

	mu   sync.Mutex
	list []*source // guarded by mu

	made    *cache[madeKey, *tiles.Library] // the last ones
	painted *tiles.Previews                 // of generated tiles
}

type madeKey struct {
	source string
	size   int
}

// source is where the tiles of a library come from.
type source struct {
	Key      string `json:"key"`  // in forms and addresses
	Name     string `json:"name"` // for people
	Uploaded bool   `json:"uploaded"`

	folder string // path; "" for generated tiles
	note   string // what was found; guarded by libraries.mu
}

// openLibraries lists the folders of the options and those that were uploaded in earlier runs.
func openLibraries(s *shelf, o Options) (*libraries, error) {
	l := &libraries{
		shelf: s, logger: o.Logger, cache: filepath.Join(o.Data, cacheFolder), turn: make(chan struct{}, 1),
		made: newCache[madeKey, *tiles.Library](256 << 20),
	}
	l.list = append(l.list, &source{Key: generated, Name: "Generated tiles"})
	for _, f := range o.Libraries {
		key := folderKey(f.Path)
		if l.find(key) == nil { // named twice
			l.list = append(l.list, &source{Key: key, Name: f.Name, folder: f.Path})
		}
	}
	entries, err := fs.ReadDir(s.root.FS(), librariesFolder)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		one := new(source)
		text, err := s.root.ReadFile(path.Join(librariesFolder, e.Name(), "library.json"))
		if err == nil {
			err = json.Unmarshal(text, one)
		}
		if err != nil || one.Key != e.Name() {
			l.logger.Warn("an uploaded library cannot be read and is left alone", "library", e.Name(), "error", err)
			continue
		}
		one.folder = filepath.Join(o.Data, librariesFolder, one.Key, picturesFolder)
		l.list = append(l.list, one)
	}
	return l, nil
}

// folderKey is the key of a folder, the same in every run. It does not reveal the path.
func folderKey(folder string) string {
	if absolute, err := filepath.Abs(folder); err == nil {
		folder = absolute
	}
	sum := sha256.Sum256([]byte(folder))
	return "folder-" + hex.EncodeToString(sum[:8])
}

func (l *libraries) views() []libraryView {
	l.mu.Lock()
	defer l.mu.Unlock()
	views := make([]libraryView, len(l.list))
	for i, s := range l.list {
		views[i] = libraryView{Key: s.Key, Name: s.Name, Note: s.note, Uploaded: s.Uploaded}
	}
	return views
}

func (l *libraries) find(key string) *source {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.list {
		if s.Key == key {
			return s
		}
	}
	return nil
}

func (l *libraries) known(key string) bool { return l.find(key) != nil }

// get makes a library with tiles of this size, or returns one made before. Progress receives how far it is.
func (l *libraries) get(ctx context.Context, key string, size int, progress func(string)) (*tiles.Library, error) {
	from := l.find(key)
	if from == nil {
		return nil, plainly("The tiles of this mosaic were deleted, so it cannot be made again. Make a new one with other tiles.")
	}
	free, err := take(ctx, l.turn)
	if err != nil {
		return nil, err
	}
	defer free()
	if made, ok := l.made.get(madeKey{key, size}); ok {
		return made, nil
	}
	progress("Making the tiles.")
	made, err := l.make(ctx, from, size, progress)
	if err != nil {
		return nil, err
	}
	l.made.put(madeKey{key, size}, made, libraryBytes(made))
	return made, nil
}

func libraryBytes(l *tiles.Library) int64 { return int64(l.Len()) * int64(l.Size()*l.Size()*4+200) }

func (l *libraries) make(ctx context.Context, from *source, size int, progress func(string)) (*tiles.Library, error) {
	if from.folder == "" {
		return tiles.Generate(size)
	}
	made, summary, err := tiles.FromDir(ctx, from.folder, size, &tiles.DirOptions{
		Cache:    l.cache,
		Progress: func(done, all int) { progress(fmt.Sprintf("Reading photographs: %d of %d.", done, all)) },
	})
	if err != nil {
		if ctx.Err() == nil { // it names the folder, which is not for the page
			l.logger.Error("the tiles of a library cannot be made", "library", from.Name, "folder", from.folder, "error", err)
			err = noTiles(from.Name, summary, err)
		}
		return nil, err
	}
	l.mu.Lock()
	from.note = summary.String()
	l.mu.Unlock()
	return made, nil
}

// tilesFile is the file with the tiles of a library of a job.
func tilesFile(id string) string { return path.Join(tilesFolder, id+".tar") }

// store keeps a library for the jobs that use it, and beside it where its tiles come from.
func (l *libraries) store(made *tiles.Library, key string) error {
	name := tilesFile(made.ID())
	// First, so that a library that is kept has it.
	if err := l.shelf.root.WriteFile(sourceFile(made.ID()), []byte(key), 0o600); err != nil {
		return err
	}
	if _, err := l.shelf.root.Stat(name); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return l.shelf.replace(name, func(w io.Writer) error { return made.Write(w) })
}

// sourceFile is the file with the key of the source of a library.
func sourceFile(id string) string { return path.Join(tilesFolder, id+".source") }

// previews returns the photographs of a library's tiles, or nil if they are not known any more.
func (l *libraries) previews(id string) *tiles.Previews {
	key, err := l.shelf.root.ReadFile(sourceFile(id))
	if err != nil {
		return nil
	}
	from := l.find(string(key))
	switch {
	case from == nil:
		return nil
	case from.folder == "":
		return l.painted
	}
	return tiles.DirPreviews(from.folder)
}
