package web

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/picture"
)

// refusal is an error for the user, with the status of its response.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

var errNotFound = refuse(http.StatusNotFound, "there is nothing at this address")

// fail responds with an error. The text of an unexpected error may have paths of the server, so it is only logged.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	var no *refusal
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		no = &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("the upload is larger than %d MB", maxUpload/1_000_000)}
	} else if diskFull(err) {
		s.logger.Error("the disk is full", "path", r.URL.Path, "error", err)
		no = &refusal{http.StatusInsufficientStorage, "the disk of this machine is full: delete mosaics that you do not need, or make room on the disk, and try again"}
	} else if !errors.As(err, &no) {
		if r.Context().Err() != nil {
			return // the client has left
		}
		s.logger.Error("a request of the page failed", "method", r.Method, "path", r.URL.Path, "error", err)
		no = &refusal{http.StatusInternalServerError, "that did not work: the log of this program says why"}
	}
	w.Header().Set("Cache-Control", "no-store")
	if wantsPage(r) {
		p := s.page(r, "This did not work")
		p.Error = sentence(no.text)
		s.render(w, no.status, "error", p)
		return
	}
	respond(w, no.status, map[string]string{"error": sentence(no.text)})
}

// diskFull reports whether there was no room on a disk. The errors of other processes are texts.
func diskFull(err error) bool {
	return err != nil && (errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), syscall.ENOSPC.Error()) ||
		strings.Contains(err.Error(), "not enough space on the disk"))
}

var errNoTiles = errors.New("there are no tiles")

// whyFailed says in plain words why a mosaic could not be made, with advice.
func whyFailed(err error) string {
	text := err.Error()
	switch {
	case diskFull(err):
		return "The disk is full. Delete mosaics that you do not need, or make room on the disk, and then upload the picture anew."
	case errors.Is(err, errNoTiles):
		return "The photographs of the folder for the tiles cannot be used. Start the program with another folder for -tiles, and then upload the picture anew."
	case strings.Contains(text, layout.ErrBadLayout.Error()):
		return "A slice was damaged in the store, and its message is in the poison queue of slicerequest. Redrive it, and the picture is finished."
	case strings.Contains(text, picture.ErrDamaged.Error()), strings.Contains(text, picture.ErrNotPicture.Error()):
		return "The stored picture was damaged, so it could not be read again. Upload it anew."
	case errors.Is(err, blob.ErrMissing):
		return "A part of the mosaic was removed while it was being made. Upload the picture anew."
	}
	return "One step failed again and again. Look into the log of this program for the cause."
}

// unusable says in plain words why an uploaded picture cannot be used, with advice.
func unusable(name string, err error) error {
	unsupported := (*picture.UnsupportedError)(nil)
	switch {
	case err == nil, errors.As(err, new(*fs.PathError)):
		return err
	case errors.As(err, &unsupported):
		return refuse(http.StatusUnprocessableEntity, "“%s” is %s, which cannot be read here: %s", name, unsupported.Format, unsupported.Advice)
	case errors.Is(err, picture.ErrTooLarge):
		return refuse(http.StatusRequestEntityTooLarge, "“%s” is too large: the limit is %s pixels", name, cli.Grouped(picture.MaxPixels))
	case errors.Is(err, picture.ErrNotPicture):
		return refuse(http.StatusUnprocessableEntity, "“%s” is not a picture that can be read here: choose a JPEG, PNG, WebP, GIF, TIFF or BMP", name)
	}
	return refuse(http.StatusUnprocessableEntity, "“%s” is damaged or unusual, and cannot be read: open it in another program, save it as a JPEG or PNG, and choose that", name)
}

// badForm is the error of a form that could not be read.
func badForm(err error) error {
	switch {
	case errors.As(err, new(*http.MaxBytesError)), errors.As(err, new(*fs.PathError)):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return refuse(http.StatusRequestTimeout, "the upload was too slow: send less, or use a faster line")
	}
	return refuse(http.StatusBadRequest, "the form ends early or is not what a browser sends")
}

// sentence makes a text one that begins and ends as a sentence does.
func sentence(text string) string {
	first, n := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + strings.TrimSuffix(text[n:], ".") + "."
}

// displayName makes the name of an upload fit to be shown and to be suggested for a download, but never to be a path.
func displayName(name string) string {
	name = name[strings.LastIndexAny(name, `/\`)+1:]
	clean := strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) || strings.ContainsRune(`<>:"|?*`, r) {
			return -1
		}
		return r
	}, name)
	runes := []rune(strings.TrimSpace(strings.TrimLeft(clean, ". ")))
	if len(runes) == 0 {
		return "picture"
	}
	return string(runes[:min(len(runes), 60)])
}
