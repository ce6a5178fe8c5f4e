package web

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"time"
)

// staticFile is a file that is the same for the life of the program.
type staticFile struct {
	content []byte
	etag    string
}

// readStatic reads the static files by their names.
func readStatic() (map[string]staticFile, error) {
	all := map[string]staticFile{}
	names, err := fs.Glob(files, "static/*")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		content, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all[path.Base(name)] = staticFile{content, fmt.Sprintf(`"%x"`, sha256.Sum256(content))}
	}
	return all, nil
}

func (s *Server) serveStatic(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("file")
	file, found := s.static[name]
	if !found {
		return refuse(http.StatusNotFound, "There is no page at this address.")
	}
	w.Header().Set("ETag", file.etag)
	w.Header().Set("Cache-Control", "no-cache") // asked for again, and mostly not sent again
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(file.content))
	return nil
}
