package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

const (
	// heartbeat is how long a stream is silent at most, so that clients and proxies see that it lives.
	heartbeat = 15 * time.Second

	// patience is how long a client may take to send a small form.
	patience = 20 * time.Second
)

// stream writes server-sent events to one client. It is for one goroutine.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	id      int
}

func newStream(w http.ResponseWriter) *stream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	return &stream{w: w, control: http.NewResponseController(w)}
}

// send writes one event. An error means that the client has left or does not read.
func (s *stream) send(event string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	s.id++
	return s.write(fmt.Appendf(nil, "id: %d\nevent: %s\ndata: %s\n\n", s.id, event, bytes.TrimSpace(text)))
}

// beat writes a comment.
func (s *stream) beat() error { return s.write([]byte(": \n\n")) }

func (s *stream) write(text []byte) error {
	if _, err := s.w.Write(text); err != nil {
		return err
	}
	return s.control.Flush()
}
