package shipping

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/millrace/millrace/blob"
)

// ServerOptions configure a [Server]. Nil and the zero value mean the defaults.
type ServerOptions struct {
	// Reported says whether a batch is in the books: its pieces may be gone then and are not asked for again. It
	// may be called concurrently. Defaults to never.
	Reported func(ctx context.Context, batch string) (bool, error)

	// Requests is how many requests are served at once; others are told to come back. Defaults to 64.
	Requests int

	// RequestTimeout is how long a request may take, its body included. Defaults to 2 min.
	RequestTimeout time.Duration

	// Logger logs errors of the store, of Reported and of complete. Defaults to slog.Default().
	Logger *slog.Logger
}

// Server receives batches over HTTP and stores them. It keeps no state besides a cache: after a restart, or beside
// another server on the same store, it goes on where the last one was. Make one with [NewServer]. It is safe
// for concurrent use.
type Server struct {
	store    blob.Store
	complete func(context.Context, Manifest) error
	options  ServerOptions
	routes   *http.ServeMux
	requests chan struct{} // a token for each request in progress
	large    chan struct{} // a token for each manifest in memory
	known    *manifests
}

// largeManifests is how many manifests, which may have [MaxManifest] bytes, are in memory at once.
const largeManifests = 2

// NewServer returns the handler of the Initiator's side. It calls complete, also concurrently, when all pieces of a
// batch are stored: at least once for a batch, again whenever a client asks for it, and not for a batch that was
// reported. An error of complete makes the client ask again. NewServer panics if store or complete is nil.
func NewServer(store blob.Store, complete func(context.Context, Manifest) error, o *ServerOptions) *Server {
	if store == nil || complete == nil {
		panic("shipping: NewServer without a store or without complete")
	}
	s := &Server{store: store, complete: complete, known: newManifests()}
	if o != nil {
		s.options = *o
	}
	if s.options.Reported == nil {
		s.options.Reported = func(context.Context, string) (bool, error) { return false, nil }
	}
	s.options.Requests = cmp.Or(max(s.options.Requests, 0), 64)
	s.options.RequestTimeout = cmp.Or(max(s.options.RequestTimeout, 0), 2*time.Minute)
	s.options.Logger = cmp.Or(s.options.Logger, slog.Default())
	s.requests = make(chan struct{}, s.options.Requests)
	s.large = make(chan struct{}, largeManifests)
	s.routes = http.NewServeMux()
	s.route("GET /batches/{batch}", s.getStatus)
	s.route("PUT /batches/{batch}", s.putManifest)
	s.route("PUT /batches/{batch}/pieces/{piece}", s.putPiece)
	s.route("POST /batches/{batch}/complete", s.postComplete)
	return s
}

// HTTPServer returns a server of s at an address, such as ":8080", with limits on slow clients and on the size of headers.
func (s *Server) HTTPServer(address string) *http.Server {
	return &http.Server{
		Addr: address, Handler: s,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       s.options.RequestTimeout,
		WriteTimeout:      s.options.RequestTimeout + 10*time.Second, // for the response that it took too long
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(versionHeader, version)
	select {
	case s.requests <- struct{}{}:
		defer func() { <-s.requests }()
	default:
		s.fail(w, r, busy)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.options.RequestTimeout)
	defer cancel()
	// A read of the body does not end with the context. Writers of tests have no deadlines.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.options.RequestTimeout))
	s.routes.ServeHTTP(w, r.WithContext(ctx))
}

// refusal is an error with its HTTP status and the sentence for the client.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

var busy = refuse(http.StatusTooManyRequests, "the Initiator has too many requests in progress; try again")

// route registers a handler, which returns what is sent as JSON.
func (s *Server) route(pattern string, handle func(*http.Request, string) (any, error)) {
	s.routes.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		batch := r.PathValue("batch")
		err := CheckBatch(batch)
		if err != nil {
			err = refuse(http.StatusBadRequest, "%v", err)
		}
		var answer any
		if err == nil {
			answer, err = handle(r, batch)
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
		text, err := json.Marshal(answer)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text) // the client repeats a request whose response is lost
	})
}

// fail sends an error. What is not the client's business goes to the log.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	refused := (*refusal)(nil)
	tooLarge := (*http.MaxBytesError)(nil)
	switch {
	case errors.As(err, &refused):
	case errors.As(err, &tooLarge):
		refused = &refusal{http.StatusRequestEntityTooLarge, "the body is too large"}
	default:
		if r.Context().Err() == nil { // otherwise the client has left
			s.options.Logger.Error("a request of the shipping side failed", "method", r.Method, "path", r.URL.Path, "error", err)
		}
		refused = &refusal{http.StatusServiceUnavailable, "the Initiator cannot take it now; try again"}
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	http.Error(w, refused.text, refused.status)
}

// description is what the server remembers of a manifest that is stored. It never changes.
type description struct {
	digest string
	pieces []Piece
}

// describe returns the description of a stored manifest.
func (s *Server) describe(ctx context.Context, batch string) (*description, error) {
	if d := s.known.get(batch); d != nil {
		return d, nil
	}
	m, err := s.manifest(ctx, batch)
	if err != nil {
		return nil, err
	}
	_, digest, err := m.encode()
	if err != nil {
		return nil, err
	}
	return s.known.put(batch, &description{digest, m.Pieces}), nil
}

func (s *Server) manifest(ctx context.Context, batch string) (Manifest, error) {
	m, _, err := ReadManifest(ctx, s.store, batch)
	if errors.Is(err, blob.ErrMissing) {
		return m, refuse(http.StatusNotFound, "batch %s is unknown; send its manifest first", batch)
	}
	return m, err
}

// status finds out what has arrived.
func (s *Server) status(ctx context.Context, batch string, d *description) (*Status, error) {
	reported, err := s.options.Reported(ctx, batch)
	if err != nil {
		return nil, err
	}
	if reported {
		return &Status{State: Reported, Manifest: d.digest}, nil
	}
	missing, err := s.missing(ctx, batch, len(d.pieces))
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		return &Status{State: Receiving, Manifest: d.digest, Missing: missing}, nil
	}
	return &Status{State: Received, Manifest: d.digest}, nil
}

// missing lists the pieces that are stored, and returns the numbers of the others.
func (s *Server) missing(ctx context.Context, batch string, pieces int) ([]int, error) {
	stored := make(map[string]bool)
	for info, err := range s.store.List(ctx, Container, piecePrefix(batch)) {
		if err != nil {
			return nil, err
		}
		stored[info.Ref.Name] = true
	}
	var missing []int
	for n := range pieces {
		if !stored[pieceRef(batch, n).Name] {
			missing = append(missing, n)
		}
	}
	return missing, nil
}

func (s *Server) getStatus(r *http.Request, batch string) (any, error) {
	d, err := s.describe(r.Context(), batch)
	if err != nil {
		return nil, err
	}
	return s.status(r.Context(), batch, d)
}

func (s *Server) postComplete(r *http.Request, batch string) (any, error) {
	d, err := s.describe(r.Context(), batch)
	if err != nil {
		return nil, err
	}
	status, err := s.status(r.Context(), batch, d)
	if err != nil || status.State == Reported {
		return status, err
	}
	if n := len(status.Missing); n > 0 {
		return nil, refuse(http.StatusPreconditionFailed, "%d of the %d pieces of batch %s are missing", n, len(d.pieces), batch)
	}
	m, err := s.manifest(r.Context(), batch)
	if err == nil {
		err = s.complete(r.Context(), m)
	}
	if err != nil {
		return nil, fmt.Errorf("complete batch %s: %w", batch, err)
	}
	return status, nil
}

// pieceNumber reads the number of a piece: digits as a client writes them, and nothing else.
func pieceNumber(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0 && strconv.Itoa(n) == text
}

// limited returns the body of a request, which fails if it is larger than the limit.
func limited(r *http.Request, limit int64) (io.Reader, error) {
	if r.ContentLength > limit {
		return nil, &http.MaxBytesError{Limit: limit}
	}
	return http.MaxBytesReader(nil, r.Body, limit), nil
}
