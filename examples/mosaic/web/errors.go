package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
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

// wantsPage reports whether the client is a person who looks at pages.
func wantsPage(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/html")
}

// fail responds with an error. The text of one that is no refusal stays here, because it may have paths of the server: it is logged.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	var no *refusal
	if r.Context().Err() != nil && !errors.As(err, &no) {
		return // the client has left; one that is too slow is told so, and its context has ended too
	}
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		no = &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("the upload is larger than %s", bytesText(large.Limit))}
	} else if diskFull(err) {
		s.logger.Error("there is no room on the disk", "method", r.Method, "path", r.URL.Path, "error", err)
		no = fullDisk()
	} else if !errors.As(err, &no) {
		if !errors.Is(err, context.Canceled) {
			s.logger.Error("a request of the page failed", "method", r.Method, "path", r.URL.Path, "error", err)
		}
		no = &refusal{http.StatusInternalServerError, "that did not work: whoever runs this program finds the cause in its log"}
	}
	if no.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	w.Header().Set("Cache-Control", "no-store")
	if wantsPage(r) {
		s.render(w, no.status, "error", errorPage{chrome: s.chrome("Not possible"), Status: no.status, Text: sentence(no.text)})
		return
	}
	respond(w, no.status, map[string]string{"error": sentence(no.text)})
}

// respond writes JSON.
func respond(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // nobody is left to tell
}

// bytesText formats a size for people.
func bytesText(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.3g GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.3g MB", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.3g kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d bytes", n)
}
