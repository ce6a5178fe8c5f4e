package web

import (
	"net/http"
	"time"
)

const (
	// readPatience is how long a client may take for a piece of a response. What the operating system keeps for a connection is
	// sent before the next piece, which may be a megabyte: so a client that reads 20 kB a second is never disconnected.
	readPatience = 2 * time.Minute

	// piece is how many bytes are sent under one deadline.
	piece = 32 << 10
)

// slowReader bounds how long a client may read nothing, and not how long it reads: a large mosaic takes hours on a slow
// line. Each piece of the response has a deadline of its own. It hides that a connection can send a whole file at once,
// which would be one piece.
type slowReader struct {
	http.ResponseWriter
	control *http.ResponseController
}

func newSlowReader(w http.ResponseWriter) *slowReader {
	s := &slowReader{w, http.NewResponseController(w)}
	s.extend() // that of the request before on this connection may be over
	return s
}

// extend gives the client time for what is sent next.
func (s *slowReader) extend() {
	_ = s.control.SetWriteDeadline(time.Now().Add(readPatience)) // a writer without deadlines never blocks
}

// WriteHeader implements [http.ResponseWriter].
func (s *slowReader) WriteHeader(status int) {
	s.extend()
	s.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (s *slowReader) Write(text []byte) (sent int, err error) {
	for {
		s.extend()
		n, err := s.ResponseWriter.Write(text[:min(piece, len(text))])
		sent += n
		text = text[n:]
		if err != nil || len(text) == 0 {
			return sent, err
		}
	}
}

// Unwrap is for [http.ResponseController].
func (s *slowReader) Unwrap() http.ResponseWriter { return s.ResponseWriter }
