package web

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// picturesFolder has the pictures of an uploaded library.
const picturesFolder = "pictures"

// newLibrary is POST /libraries.
func (s *Server) newLibrary(w http.ResponseWriter, r *http.Request) error {
	parts, free, err := s.admitUpload(w, r, s.limits.Collected)
	if err != nil {
		return err
	}
	defer free()
	room := s.limits.Disk - s.used() - s.promised()
	if room <= s.limits.Disk/10 { // what the cache has may be needed
		s.reclaim(r.Context())
		room = s.limits.Disk - s.used() - s.promised()
	}
	if err := s.roomForLibrary(); err != nil {
		return err
	}
	key := strings.ToLower(rand.Text())
	dir := path.Join(incomingFolder, key)
	if err := s.root.MkdirAll(path.Join(dir, picturesFolder), 0o700); err != nil {
		return err
	}
	defer func() { _ = s.root.RemoveAll(dir) }() // it has moved, or is emptied at the next start
	made := &source{Key: key, Name: "Uploaded photographs", Uploaded: true}
	n := 0
	for {
		part, err := parts.NextPart()
		if err == io.EOF { // unwrapped: the error of a form that is cut short wraps it
			break
		}
		if err != nil {
			return badForm(err)
		}
		switch part.FormName() {
		case "name":
			text, err := readField(part)
			if err != nil {
				return err
			}
			made.Name = displayName(text, made.Name)
		case "pictures":
			if part.FileName() == "" {
				continue
			}
			if n++; n > s.limits.Pictures {
				return refuse(http.StatusRequestEntityTooLarge, "a library has at most %d pictures", s.limits.Pictures)
			}
			name, bytes, err := s.receive(part, s.limits.Upload)
			if err != nil {
				return err
			}
			if room -= bytes; room < 0 {
				_ = s.root.Remove(name) // emptied at the next start
				return refuse(http.StatusInsufficientStorage, "there is no room for so many pictures: delete some mosaics or libraries")
			}
			if err := s.root.Rename(name, path.Join(dir, picturesFolder, fmt.Sprintf("%05d%s", n, knownExtension(part.FileName())))); err != nil {
				return err
			}
		default:
			return refuse(http.StatusBadRequest, "the form has an unknown field %.40q", part.FormName())
		}
	}
	if n == 0 {
		return refuse(http.StatusBadRequest, "choose the pictures of the library")
	}
	if err := s.keepLibrary(dir, made); err != nil {
		return err
	}
	answer(w, r, http.StatusCreated, map[string]any{"key": made.Key, "name": made.Name, "pictures": n}, "/")
	return nil
}

// keepLibrary moves the pictures of a library to where they stay.
func (s *Server) keepLibrary(dir string, made *source) error {
	text, err := json.Marshal(made)
	if err != nil {
		return err
	}
	s.admission.Lock()
	defer s.admission.Unlock()
	if err := s.roomForLibrary(); err != nil {
		return err
	}
	if err := s.root.WriteFile(path.Join(dir, "library.json"), text, 0o600); err != nil {
		return err
	}
	if err := s.root.Rename(dir, path.Join(librariesFolder, made.Key)); err != nil {
		return err
	}
	made.folder = filepath.Join(s.options.Data, librariesFolder, made.Key, picturesFolder)
	s.libraries.add(made)
	return nil
}

func (l *libraries) add(s *source) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, s)
}

// knownExtension returns the extension of a name if it is one of pictures, and else none: the file is then skipped.
func knownExtension(name string) string {
	switch e := strings.ToLower(path.Ext(name)); e {
	case ".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".heic", ".heif", ".avif":
		return e
	}
	return ""
}

// deleteLibrary is POST /libraries/{key}/delete. Jobs that used it keep its tiles; one that has yet to read it prevents that.
func (s *Server) deleteLibrary(w http.ResponseWriter, r *http.Request) error {
	key := r.PathValue("key")
	s.admission.Lock()
	_, _, used := s.shelf.madeOf(key)
	removed := used == "" && s.libraries.remove(key)
	s.admission.Unlock()
	if used != "" {
		return refuse(http.StatusConflict, "the mosaic of “%s” still needs this library: delete it when the tiles of that mosaic are chosen", used)
	}
	if !removed {
		return errNoLibrary
	}
	// First by a rename, because a library of which a part is deleted would be back after a kill. The rest is deleted at the next
	// start if it cannot be now.
	gone := path.Join(incomingFolder, key)
	if err := s.root.Rename(path.Join(librariesFolder, key), gone); err != nil {
		return err
	}
	if err := s.root.RemoveAll(gone); err != nil {
		return err
	}
	answer(w, r, http.StatusOK, map[string]string{"deleted": key}, "/")
	return nil
}

// remove forgets an uploaded library. It reports whether there was one.
func (l *libraries) remove(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.list, func(s *source) bool { return s.Key == key && s.Uploaded })
	if i < 0 {
		return false
	}
	l.list = slices.Delete(l.list, i, i+1)
	return true
}
