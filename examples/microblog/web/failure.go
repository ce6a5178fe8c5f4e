package web

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/table"
)

// refusal is an error for the user, with the status of its response.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(status int, text string) error { return &refusal{status, text} }

// errUnfinished is the result of a form whose work panicked.
var errUnfinished = errors.New("the work on this form was not finished")

// foreign answers a request that another page sent.
func (s *Server) foreign(w http.ResponseWriter, r *http.Request) {
	s.fail(w, r, refuse(http.StatusForbidden, "This request comes from another page, so nothing was done."))
}

// explain returns what an error means for the user. The text of an unknown one stays here, because it may say how the
// program is set up: it is logged.
func (s *Server) explain(r *http.Request, err error) *refusal {
	var known *refusal
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, channels.ErrNoChannel):
		return &refusal{http.StatusNotFound, "There is no channel of this name, or it is being deleted."}
	case errors.Is(err, channels.ErrChannelExists):
		return &refusal{http.StatusConflict, "There is a channel of this name already. Choose another name."}
	case errors.Is(err, table.ErrInvalid): // the only thing that tables get unchecked is a token
		return &refusal{http.StatusBadRequest, "This address does not lead to a page. Begin at the first one."}
	case errors.Is(err, channels.ErrInvalid):
		return &refusal{http.StatusBadRequest, whatIsInvalid(err)}
	case table.Transient(err), queue.Transient(err), errors.Is(err, context.DeadlineExceeded):
		// As a text: the program's logger leaves out errors of an outage, and a full disk on this machine is none.
		s.logger.Error("the microblog could not reach its store", "method", r.Method, "path", r.URL.Path, "error", err.Error())
		return &refusal{http.StatusServiceUnavailable, "The store of the microblog does not answer at the moment. Try again in a few seconds."}
	}
	s.logger.Error("a request of the microblog failed", "method", r.Method, "path", r.URL.Path, "error", err)
	return &refusal{http.StatusInternalServerError, "That did not work. Whoever runs this program finds the cause in its log."}
}

// fail shows an error as a page.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return // the client has left
	}
	why := s.explain(r, err)
	s.show(w, why.status, "error.html", errorPage{page: page{Title: "That did not work"}, Text: why.text, Back: s.way(r)})
}

// way returns a page from which the user of a request can go on.
func (s *Server) way(r *http.Request) string {
	if name := r.URL.Query().Get("name"); name != "" && r.URL.Path != "/channel" {
		return link("/channel", "name", name)
	}
	return "/"
}

// whatIsInvalid returns what is wrong with an input, without what was attempted.
func whatIsInvalid(err error) string {
	_, what, found := strings.Cut(err.Error(), channels.ErrInvalid.Error()+": ")
	if !found {
		what = err.Error()
	}
	return sentence(what)
}

// sentence makes a text one that begins and ends as a sentence does.
func sentence(text string) string {
	first, n := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[n:] + "."
}
