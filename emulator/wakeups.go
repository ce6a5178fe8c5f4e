package emulator

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/queuexml"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// A wake-up stream is a response without an end, with a line for each event: see docs/protocol.md. The
// service has nothing like it and refuses the query.

// wakeupQuery is what the query of a stream contains.
const wakeupQuery = "comp=wakeups"

// Limits of streams. A client that is over a limit polls, as it would without streams.
const (
	maxStreams      = 1024 // of a server
	maxQueueStreams = 256  // of a queue

	// keepAlive is how often a line is sent at least, so that both sides notice that the other is gone.
	keepAlive = 15 * time.Second

	// writeWithin is how long a client may take to read a line.
	writeWithin = 10 * time.Second

	// maxStreamLife is when a client must authorize again: signatures expire and keys are replaced.
	maxStreamLife = time.Hour
)

var (
	errTooManyStreams = newFailure(503, "ServerBusy", "There are too many wake-up streams. Poll, and retry later.")
	errNoStreaming    = newFailure(501, "NotImplemented", "This request cannot be responded to with a stream.")
)

// streams are the open streams of a server.
type streams struct {
	mu     sync.Mutex
	open   map[string]*stream // guarded by mu; by id
	queues map[queue.Name]int // guarded by mu; number by queue
}

// stream is an open wake-up stream.
type stream struct {
	id      string // random: whoever may read one stream cannot guess another
	name    queue.Name
	watcher *localqueue.Watcher
	of      *streams
}

// openStream starts a stream. The caller of the handler runs it, or closes it.
func (c *call) openStream() *failure {
	if !canStream(c.writer) {
		return errNoStreaming
	}
	s, f := c.server.streams.add(c.name())
	if f != nil {
		return f
	}
	var err error
	if s.watcher, err = c.target().Watch(c.request.Context()); err != nil {
		s.close()
		return toFailure(err)
	}
	c.header["Content-Type"] = []string{"text/plain; charset=utf-8"}
	c.header["X-Accel-Buffering"] = []string{"no"} // for nginx and its relatives
	c.header["Connection"] = []string{"close"}
	c.status, c.stream = http.StatusOK, s
	return nil
}

// setReadiness says whether a stream is ready for events.
func (c *call) setReadiness() *failure {
	id, f := c.query.required("stream")
	if f != nil {
		return f
	}
	ready, f := c.query.required("ready")
	if f != nil {
		return f
	}
	if ready != "true" && ready != "false" {
		return errInvalidQueryValue.with(
			queuexml.Detail{Name: "QueryParameterName", Value: "ready"},
			queuexml.Detail{Name: "QueryParameterValue", Value: shorten(ready)},
			queuexml.Detail{Name: "Reason", Value: "It is neither true nor false."})
	}
	s := c.server.streams.find(c.name(), id)
	if s == nil {
		return errResourceNotFound.with(queuexml.Detail{Name: "Reason", Value: "There is no such stream of this queue."})
	}
	s.watcher.Ready(ready == "true")
	return c.noContent(nil)
}

// add reserves a stream of a queue.
func (all *streams) add(name queue.Name) (*stream, *failure) {
	var random [16]byte
	rand.Read(random[:]) // never fails, see crypto/rand
	s := &stream{id: hex.EncodeToString(random[:]), name: name, of: all}
	all.mu.Lock()
	defer all.mu.Unlock()
	if len(all.open) >= maxStreams || all.queues[name] >= maxQueueStreams {
		return nil, errTooManyStreams
	}
	if all.open == nil {
		all.open, all.queues = make(map[string]*stream), make(map[queue.Name]int)
	}
	all.open[s.id] = s
	all.queues[name]++
	return s, nil
}

// find returns an open stream of the queue, or nil. Its id is known only after it has a watcher.
func (all *streams) find(name queue.Name, id string) *stream {
	all.mu.Lock()
	defer all.mu.Unlock()
	if s := all.open[id]; s != nil && s.name == name {
		return s
	}
	return nil
}

// close ends the stream. An event that nobody has answered goes to another one.
func (s *stream) close() {
	if s.watcher != nil {
		s.watcher.Close()
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	delete(s.of.open, s.id)
	if s.of.queues[s.name]--; s.of.queues[s.name] == 0 {
		delete(s.of.queues, s.name)
	}
}

// run sends lines until the client leaves, stopping is closed, or the queue is gone, and closes the
// stream.
func (s *stream) run(ctx context.Context, stopping <-chan struct{}, send func(line string) error) {
	defer s.close()
	alive, end := time.NewTicker(keepAlive), time.NewTimer(maxStreamLife)
	defer alive.Stop()
	defer end.Stop()
	// The watcher is in force before the client reads that it is.
	err := send("ready " + s.id + " " + strconv.Itoa(int(keepAlive/time.Second)))
	for err == nil {
		select {
		case bytes := <-s.watcher.Woken():
			err = send("event " + strconv.FormatInt(bytes, 10))
		case <-alive.C:
			err = send("")
		case <-s.watcher.Ended():
			return
		case <-end.C:
			return
		case <-stopping:
			return
		case <-ctx.Done():
			return
		}
	}
}

// runOver runs the stream as the response to a request.
func (s *stream) runOver(w http.ResponseWriter, r *http.Request) {
	clear(r.Header) // it may be large, and a stream is open for long
	connection := http.NewResponseController(w)
	// Errors mean that the server of the caller has no deadlines.
	_ = connection.SetReadDeadline(time.Time{}) // net/http ends the context when the client has left
	w.WriteHeader(http.StatusOK)
	s.run(r.Context(), stoppingOf(r.Context()), func(line string) error {
		_ = connection.SetWriteDeadline(time.Now().Add(writeWithin))
		if _, err := io.WriteString(w, line+"\n"); err != nil {
			return err
		}
		return connection.Flush()
	})
}

// canStream reports whether a response is sent while it is written.
func canStream(w http.ResponseWriter) bool {
	for {
		switch t := w.(type) {
		case *response, http.Flusher, interface{ FlushError() error }:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return false
		}
	}
}

// mayStream reports whether a request with this query may ask for a stream.
func mayStream(query string) bool { return strings.Contains(query, wakeupQuery) }

// streaming is outgoing for a stream.
func (w *response) streaming(r *http.Request, s *stream) *http.Response {
	out := w.outgoing(r)
	out.ContentLength = -1
	ctx, cancel := context.WithCancelCause(r.Context())
	reader, writer := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stop := context.AfterFunc(ctx, func() { _ = writer.CloseWithError(context.Cause(ctx)) }) // a write may be waiting
		defer stop()
		s.run(ctx, nil, func(line string) error {
			slow := time.AfterFunc(writeWithin, func() { cancel(errSlowReader) })
			defer slow.Stop()
			_, err := io.WriteString(writer, line+"\n")
			return err
		})
		_ = writer.CloseWithError(context.Cause(ctx)) // nil is io.EOF
	}()
	out.Body = &streamBody{reader, func() { cancel(errStreamClosed); <-ended }}
	return out
}

var (
	errSlowReader   = errors.New("emulator: the wake-up stream was not read in time")
	errStreamClosed = errors.New("emulator: the wake-up stream was closed")
)

// streamBody is the body of a stream in process.
type streamBody struct {
	io.Reader
	end func() // ends the stream and waits until nothing of it runs
}

func (b *streamBody) Close() error {
	b.end()
	return nil
}

// stoppingKey is the key of a channel in the contexts of an endpoint's connections. It is closed when the
// endpoint stops.
type stoppingKey struct{}

func stoppingOf(ctx context.Context) <-chan struct{} {
	stopping, _ := ctx.Value(stoppingKey{}).(chan struct{}) // nil if another server calls the handler
	return stopping
}
