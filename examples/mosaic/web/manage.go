package web

import (
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/google/uuid"
)

// deleteJob is POST /jobs/{id}/delete.
func (s *Server) deleteJob(w http.ResponseWriter, r *http.Request) error {
	j, err := s.job(r)
	if err != nil {
		return err
	}
	var idle chan struct{}
	now := j.update(func() {
		j.gone, idle = true, j.idle
		if j.cancel != nil {
			j.cancel()
		}
	})
	<-idle // soon, also if the client leaves: what is half deleted would come back at the next start
	j.filing.Lock()
	err = s.shelf.drop(now.ID)
	j.filing.Unlock()
	if err != nil {
		return err
	}
	s.forget(now.ID)
	s.dropTiles(now.LibraryID)
	answer(w, r, http.StatusOK, map[string]string{"deleted": now.ID}, "/")
	return nil
}

// dropTiles deletes the tiles of a library that no job uses any more.
func (s *Server) dropTiles(id string) {
	s.admission.Lock()
	defer s.admission.Unlock()
	if id == "" || s.shelf.uses(id) {
		return
	}
	_ = s.root.Remove(tilesFile(id)) // made again when it is needed, and so are the others
	_ = s.root.Remove(sourceFile(id))
	s.shrunk.drop(func(k shrunkKey) bool { return k.library == id })
}

// retryJob is POST /jobs/{id}/retry.
func (s *Server) retryJob(w http.ResponseWriter, r *http.Request) error {
	j, err := s.job(r)
	if err != nil {
		return err
	}
	if !s.again(j) {
		return refuse(http.StatusConflict, "only a job that failed can be started again")
	}
	url := "/jobs/" + j.current().ID
	answer(w, r, http.StatusOK, map[string]string{"id": j.current().ID, "url": url}, url)
	return nil
}

// again starts a job anew that has failed. It reports whether it had.
func (s *Server) again(j *job) bool {
	begin := false
	now := j.update(func() {
		if begin = j.State == failed && !j.gone; begin {
			j.State, j.Error, j.Detail, j.Request, j.Took = waiting, "", "", uuid.Nil, 0
			clear(j.stored)
		}
	})
	if !begin {
		return false
	}
	_ = s.root.Remove(file(now.ID, layoutFile)) // of the request that failed
	_ = s.root.Remove(file(now.ID, mosaicFile))
	s.forget(now.ID)
	s.save(j)
	s.start(j)
	return true
}

// original is GET /jobs/{id}/original.
func (s *Server) original(w http.ResponseWriter, r *http.Request) error {
	j, err := s.job(r)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "image/jpeg")
	w.Header().Set("Cache-Control", "private, max-age=86400, immutable")
	return s.sendFile(w, r, j.current().ID, originalFile)
}

// mosaic is GET /jobs/{id}/mosaic.
func (s *Server) mosaic(w http.ResponseWriter, r *http.Request) error {
	j, err := s.finished(r)
	if err != nil {
		return err
	}
	name := strings.TrimSuffix(j.Name, path.Ext(j.Name))
	w.Header().Set("Content-Type", "image/png")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name + " mosaic.png"}))
	w.Header().Set("Cache-Control", "private, no-cache")
	return s.sendFile(w, r, j.ID, mosaicFile)
}

// sendFile sends a file of a job, or a part of it.
func (s *Server) sendFile(w http.ResponseWriter, r *http.Request, id, name string) error {
	f, err := s.shelf.open(id, name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nothing was written
	info, err := f.Stat()
	if err != nil {
		return err
	}
	http.ServeContent(w, r, "", info.ModTime(), f)
	return nil
}
