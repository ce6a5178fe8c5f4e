package web

import (
	"context"
	"errors"
	"net/http"

	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/table"
)

// list shows a page of channels.
func (s *Server) list(w http.ResponseWriter, r *http.Request) error {
	return s.showList(w, r, http.StatusOK, channelDraft{})
}

func (s *Server) showList(w http.ResponseWriter, r *http.Request, status int, draft channelDraft) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	from := table.Token(q.Get("from"))
	found, next, err := pageWithContent(from, func(from table.Token) ([]channels.Channel, table.Token, error) {
		return s.site.List(r.Context(), from, s.top)
	})
	if err != nil {
		return err
	}
	draft.Once = newForm()
	p := listPage{page: page{Title: "Microblog"}, Channels: found, First: from == "", Draft: draft}
	if next != "" {
		p.Next = link("/", "from", string(next))
	}
	s.show(w, status, "list.html", p)
	return nil
}

// maxEmpty is how many empty pages are read for one page that is shown: a store may return pages with nothing but the
// place of the next one.
const maxEmpty = 20

// pageWithContent reads pages until one has something, or is the last.
func pageWithContent[T any](from table.Token, read func(from table.Token) ([]T, table.Token, error)) (found []T, next table.Token, err error) {
	for range maxEmpty {
		found, next, err = read(from)
		if err != nil || len(found) > 0 || next == "" {
			break
		}
		from = next
	}
	return found, next, err
}

func (s *Server) create(w http.ResponseWriter, r *http.Request) error {
	fields, err := readForm(w, r)
	if err != nil {
		return err
	}
	draft := channelDraft{Name: text(fields, "name"), Owner: text(fields, "owner")}
	err = s.submit(w, r, fields.Get("once"), func(ctx context.Context) (string, error) {
		c, err := s.site.Create(ctx, draft.Name, draft.Owner)
		return link("/channel", "name", c.Name), err
	})
	if errors.Is(err, channels.ErrInvalid) || errors.Is(err, channels.ErrChannelExists) {
		why := s.explain(r, err)
		draft.Wrong = why.text
		return s.showList(w, r, why.status, draft)
	}
	return err
}
