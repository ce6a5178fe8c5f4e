package web

import (
	"context"
	"net/http"

	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/table"
)

// read shows a page of a channel.
func (s *Server) read(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	from := table.Token(q.Get("from"))
	var c channels.Channel
	posts, next, err := pageWithContent(from, func(from table.Token) (posts []channels.Post, next table.Token, err error) {
		c, posts, next, err = s.site.Page(r.Context(), q.Get("name"), from, s.top)
		return posts, next, err
	})
	if err != nil {
		return err
	}
	p := channelPage{
		page: page{Title: plain(c.Name) + " – Microblog"}, Channel: c, Posts: posts, First: from == "",
		Draft: postDraft{Action: writeTo(c), Once: newForm()},
	}
	if written := q.Get("written"); written != "" {
		p.Written = true
		for _, b := range posts {
			p.Here = p.Here || b.ID == written
		}
	}
	if next != "" {
		p.Next = link("/channel", "name", c.Name, "from", string(next))
	}
	s.show(w, http.StatusOK, "channel.html", p)
	return nil
}

// writeTo returns the address to which posts of a channel are sent.
func writeTo(c channels.Channel) string {
	return link("/channel", "name", c.Name, "incarnation", string(c.Incarnation))
}

// write adds a post to the channel that the user saw. If that fails, the user gets back what was written.
func (s *Server) write(w http.ResponseWriter, r *http.Request) error {
	fields, err := readForm(w, r)
	if err != nil {
		return err
	}
	q, err := query(r)
	if err != nil {
		return err
	}
	draft := postDraft{User: text(fields, "user"), Title: text(fields, "title"), Text: text(fields, "text")}
	err = s.submit(w, r, fields.Get("once"), func(ctx context.Context) (string, error) {
		c, err := s.seen(ctx, q.Get("name"), q.Get("incarnation"))
		if err != nil {
			return "", err
		}
		b, err := s.site.Write(ctx, c, draft.User, draft.Title, draft.Text)
		return link("/channel", "name", c.Name, "written", b.ID) + "#written", err
	})
	if err == nil {
		return nil
	}
	why := s.explain(r, err)
	p := draftPage{page: page{Title: "Not written"}, Name: q.Get("name"), Wrong: why.text, Draft: draft}
	p.Draft.Action, p.Draft.Once = r.URL.RequestURI(), newForm()
	switch why.status {
	case http.StatusNotFound, http.StatusConflict:
		p.Gone = true
	case http.StatusServiceUnavailable:
		p.Wrong += " The post may have been written all the same: look before you send it again."
	}
	s.show(w, why.status, "draft.html", p)
	return nil
}

// seen returns a channel if it is still the one that the user saw.
func (s *Server) seen(ctx context.Context, name, incarnation string) (channels.Channel, error) {
	c, err := s.site.Channel(ctx, name)
	if err != nil {
		return channels.Channel{}, err
	}
	if string(c.Incarnation) != incarnation {
		return channels.Channel{}, refuse(http.StatusConflict, "The channel that you saw was deleted, and there is a new one of the same name. Nothing was done.")
	}
	return c, nil
}
