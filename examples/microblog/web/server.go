package web

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"time"

	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/examples/microblog/roles"
	"github.com/millrace/millrace/internal/webpage"
)

// Options configure a [Server]. Nil and the zero value mean the defaults.
type Options struct {
	// Top is how many channels or posts a page has at most. Defaults to 20.
	Top int

	// Hosts are names of this server, besides localhost and addresses. Defaults to none.
	Hosts []string

	// Logger receives errors. Defaults to slog.Default().
	Logger *slog.Logger
}

// Server is the web role, an [http.Handler]. Make one with [New].
type Server struct {
	site      *channels.Site
	deletions *roles.Requester
	top       int
	logger    *slog.Logger
	once      once
	pages     *template.Template
	static    http.Handler
	handler   http.Handler
}

// New returns the web role for a site, which sends deletions to a requester.
func New(site *channels.Site, deletions *roles.Requester, o *Options) (*Server, error) {
	if o == nil {
		o = &Options{}
	}
	s := &Server{site: site, deletions: deletions, top: cmp.Or(o.Top, 20), logger: o.Logger}
	if s.logger == nil {
		s.logger = slog.Default()
	}
	var err error
	if s.pages, err = parsePages(); err != nil {
		return nil, fmt.Errorf("read the templates: %w", err)
	}
	own, err := fs.Sub(files, "static")
	if err != nil {
		return nil, err
	}
	if s.static, err = webpage.Static(own, s.nothing()); err != nil {
		return nil, err
	}
	guard := webpage.Guard{Policy: policy, Hosts: o.Hosts, Foreign: http.HandlerFunc(s.foreign)}
	s.handler = guard.Handler(s.routes())
	return s, nil
}

// policy allows the style and the icon, and forms to this server.
const policy = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/{$}", s.methods(s.list, nil))
	mux.Handle("/channels", s.methods(nil, s.create))
	mux.Handle("/channel", s.methods(s.read, s.write))
	mux.Handle("/delete", s.methods(s.ask, s.remove))
	mux.Handle("/deleting", s.methods(s.deleting, nil))
	mux.Handle("/static/{file}", s.methods(func(w http.ResponseWriter, r *http.Request) error {
		s.static.ServeHTTP(w, r)
		return nil
	}, nil))
	mux.Handle("/", s.nothing())
	return mux
}

// nothing answers requests for unknown addresses.
func (s *Server) nothing() http.Handler {
	return action(func(http.ResponseWriter, *http.Request) error {
		return refuse(http.StatusNotFound, "There is no page at this address.")
	}).handler(s)
}

// action answers a request, or returns an error before it has written anything.
type action func(w http.ResponseWriter, r *http.Request) error

// methods returns the handler of an address: for GET and HEAD, and for POST. Nil means that there is none.
func (s *Server) methods(get, post action) http.Handler {
	allowed := "GET, HEAD, POST"
	switch {
	case post == nil:
		allowed = "GET, HEAD"
	case get == nil:
		allowed = "POST"
	}
	return action(func(w http.ResponseWriter, r *http.Request) error {
		switch {
		case get != nil && (r.Method == http.MethodGet || r.Method == http.MethodHead):
			return get(w, r)
		case post != nil && r.Method == http.MethodPost:
			return post(w, r)
		}
		w.Header().Set("Allow", allowed)
		return refuse(http.StatusMethodNotAllowed, "This address does not take that kind of request.")
	}).handler(s)
}

// patience is how long a request may take.
const patience = 20 * time.Second

// handler bounds the time of an action, and shows its error.
func (a action) handler(s *Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		if err := a(w, r.WithContext(ctx)); err != nil {
			s.fail(w, r, err)
		}
	})
}
