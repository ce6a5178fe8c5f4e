package webpage

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"io/fs"
	"net/http"
	"time"
)

//go:embed base.css
var base []byte

// Base is the name that [Static] serves the base stylesheet under.
const Base = "base.css"

// Static returns a handler of GET and HEAD requests for the files at the top of a file system and for [Base]. It
// reads all of them now. A pattern with the wildcard {file} routes to it, such as "/static/{file}". Browsers revalidate a file by
// its ETag before each use. Unknown names go to notFound.
func Static(files fs.FS, notFound http.Handler) (http.Handler, error) {
	type file struct {
		content []byte
		etag    string
	}
	all := map[string]file{}
	add := func(name string, content []byte) {
		all[name] = file{content, fmt.Sprintf(`"%x"`, sha256.Sum256(content))}
	}
	add(Base, base)
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, fmt.Errorf("read the static files: %w", err)
	}
	for _, entry := range entries {
		content, err := fs.ReadFile(files, entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read the static files: %w", err)
		}
		add(entry.Name(), content)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("file")
		f, found := all[name]
		if !found {
			notFound.ServeHTTP(w, r)
			return
		}
		w.Header().Set("ETag", f.etag)
		w.Header().Set("Cache-Control", "no-cache") // revalidated, and rarely sent again
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(f.content))
	}), nil
}
