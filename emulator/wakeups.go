package emulator

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/internal/queuexml"
	"github.com/millrace/millrace/queue"
)

// A wake-up stream is a response without an end, with a line for each event: see docs/protocol.md.
// The service has nothing like it and refuses the query.

// wakeupQuery is what the query of a stream contains.
const wakeupQuery = "comp=wakeups"

// Limits of streams. A client that is over a limit polls, as it would without streams.
const (
	maxStreams      = 1024 // of a server
	maxQueueStreams = 256  // of a queue

	// keepAlive is the longest time between two lines, so that a client notices that the server is
	// gone.
	keepAlive = 15 * time.Second

	// maxSilence is how long a stream lasts without a sign of life of its client, which repeats its
	// readiness more often than keepAlive. Unread lines are no such sign: the kernel takes them for
	// hours.
	maxSilence = 2 * keepAlive

	// writeWithin is how long a client may take to read a line.
	writeWithin = 10 * time.Second

	// maxStreamLife is when a client must authorize again: signatures expire and keys are replaced.
	maxStreamLife = time.Hour
)

var (
	errTooManyStreams = newFailure(503, "ServerBusy", "There are too many wake-up streams. Poll, and retry later.")
	errNoStreaming    = newFailure(501, "NotImplemented", "This request cannot be responded to with a stream.")
)

type streams struct {
	mu   sync.Mutex
	open map[string]*stream // guarded by mu; by id
}

// stream is an open wake-up stream.
type stream struct {
	id       string // random: whoever may read one stream cannot guess another
	name     queue.Name
	holder   holder
	watcher  localengine.Watcher
	of       *streams
	replaced chan struct{} // closed when the stream gives way to another one
	heard    time.Time     // of the last sign of life; guarded by of.mu
}

// holder is the client of a stream, as far as a server can tell clients apart.
type holder struct {
	account    string
	credential string       // see call.credential
	network    netip.Prefix // address, or the first half of an IPv6 address
}

func (c *call) holder() holder {
	at := c.remote()
	bits := at.BitLen()
	if at.Is6() {
		bits /= 2
	}
	network, _ := at.Prefix(bits) // the number of bits is valid
	return holder{strings.Clone(c.account), c.credential, network}
}

// openStream starts a stream. The caller of the handler runs it, or closes it.
func (c *call) openStream() *failure {
	if !canStream(c.writer) {
		return errNoStreaming
	}
	watcher, err := c.target().Watch(c.request.Context())
	if err != nil {
		return toFailure(err)
	}
	s := c.server.streams.add(queue.Name{Account: strings.Clone(c.account), Queue: strings.Clone(c.queue)}, c.holder(), watcher)
	if s == nil {
		_ = watcher.Close() // never fails
		return errTooManyStreams
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
		return errInvalidQueryValue.ofQuery("ready", shorten(ready), "It is neither true nor false.")
	}
	c.server.streams.mu.Lock()
	s := c.server.streams.open[id]
	c.server.streams.mu.Unlock()
	if s == nil || s.name != c.name() {
		return errResourceNotFound.with(queuexml.Detail{Name: "Reason", Value: "There is no such stream of this queue."})
	}
	s.watcher.Ready(ready == "true")
	s.hear()
	return c.noContent(nil)
}

// add adds a stream of a queue. It returns nil if there are too many.
func (all *streams) add(name queue.Name, h holder, w localengine.Watcher) *stream {
	var random [16]byte
	rand.Read(random[:]) // never fails, see crypto/rand
	s := &stream{id: hex.EncodeToString(random[:]), name: name, holder: h, watcher: w, of: all,
		replaced: make(chan struct{}), heard: time.Now()}
	all.mu.Lock()
	defer all.mu.Unlock()
	var ofQueue, every []*stream
	for _, other := range all.open {
		every = append(every, other)
		if other.name == name {
			ofQueue = append(ofQueue, other)
		}
	}
	full := every
	if len(ofQueue) >= maxQueueStreams {
		full = ofQueue
	}
	if len(ofQueue) >= maxQueueStreams || len(every) >= maxStreams {
		other := givesWay(full, h)
		if other == nil {
			return nil
		}
		delete(all.open, other.id)
		close(other.replaced)
	}
	if all.open == nil {
		all.open = make(map[string]*stream)
	}
	all.open[s.id] = s
	return s
}

// givesWay returns the stream that gives way to one of another holder, or nil. No client can thus
// take all streams: it is one of the account with the most streams, and there of the holder with
// the most. The newcomer has fewer, even with its new one.
func givesWay(open []*stream, newcomer holder) *stream {
	accounts, holders := make(map[string]int), make(map[holder]int)
	for _, s := range open {
		accounts[s.holder.account]++
		holders[s.holder]++
	}
	account, least := newcomer.account, holders[newcomer]+1
	for a, n := range accounts {
		if n > accounts[account] && n > accounts[newcomer.account]+1 {
			account, least = a, 0
		}
	}
	var gives *stream
	for _, s := range open {
		n := holders[s.holder]
		if s.holder.account == account && (n > least || n == least && gives != nil && s.heard.Before(gives.heard)) {
			gives, least = s, n
		}
	}
	return gives
}

// close ends the stream. An event that nobody has answered goes to another one.
func (s *stream) close() {
	_ = s.watcher.Close() // never fails
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	delete(s.of.open, s.id)
}

// hear notes a sign of life.
func (s *stream) hear() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.heard = time.Now()
}

// endsAt returns when the stream ends without a sign of life.
func (s *stream) endsAt() time.Time {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	return s.heard.Add(maxSilence)
}

// run sends lines, each by a deadline, until the client leaves or gives no sign of life, stopping
// is closed, or the queue is gone, and closes the stream.
func (s *stream) run(ctx context.Context, stopping <-chan struct{}, sendBy func(line string, deadline time.Time) error) {
	defer s.close()
	end := time.Now().Add(maxStreamLife)
	var said time.Time
	send := func(line string) error {
		said = time.Now()
		deadline := said.Add(writeWithin)
		if at := s.endsAt(); at.Before(deadline) {
			deadline = at
		}
		return sendBy(line, deadline)
	}
	// The watcher is in force before the client reads that it is.
	err := send("ready " + s.id + " " + strconv.Itoa(int(keepAlive/time.Second)))
	timer := time.NewTimer(keepAlive)
	defer timer.Stop()
	for err == nil {
		quiet, left := keepAlive-time.Since(said), min(time.Until(end), time.Until(s.endsAt()))
		switch {
		case left <= 0:
			return
		case quiet <= 0:
			err = send("")
			continue
		}
		timer.Reset(min(quiet, left))
		select {
		case bytes := <-s.watcher.Woken():
			err = send("event " + strconv.FormatInt(bytes, 10))
		case <-timer.C:
		case <-s.replaced:
			return
		case <-s.watcher.Ended():
			return
		case <-stopping:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (s *stream) runOver(w http.ResponseWriter, r *http.Request) {
	if countedConnOf(r.Context()) != nil { // no other server's handler uses the request later
		clear(r.Header) // it may be large, and a stream is open for long
	}
	connection := http.NewResponseController(w)
	// Errors mean that the server of the caller has no deadlines.
	_ = connection.SetReadDeadline(time.Time{}) // net/http ends the context when the client has left
	w.WriteHeader(http.StatusOK)
	stopping, _ := r.Context().Value(stoppingKey{}).(chan struct{}) // nil if another server calls the handler
	s.run(r.Context(), stopping, func(line string, deadline time.Time) error {
		_ = connection.SetWriteDeadline(deadline)
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
		s.run(ctx, nil, func(line string, deadline time.Time) error {
			slow := time.AfterFunc(time.Until(deadline), func() { cancel(errSlowReader) })
			defer slow.Stop()
			_, err := io.WriteString(writer, line+"\n")
			if err == nil {
				s.hear() // a pipe takes only what is read
			}
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

type streamBody struct {
	io.Reader
	end func() // ends the stream and waits until nothing of it runs
}

func (b *streamBody) Close() error {
	b.end()
	return nil
}

// stoppingKey is the key of a channel in the contexts of an endpoint's connections. It is closed
// when the endpoint stops.
type stoppingKey struct{}
