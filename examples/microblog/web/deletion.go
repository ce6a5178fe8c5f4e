package web

import (
	"context"
	"errors"
	"net/http"

	"github.com/millrace/millrace/examples/microblog/channels"
)

// ask asks whether to delete a channel.
func (s *Server) ask(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	c, err := s.site.Channel(r.Context(), q.Get("name"))
	if err != nil {
		return err
	}
	s.show(w, http.StatusOK, "delete.html", questionPage{
		page: page{Title: "Delete a channel?"}, Channel: c,
		Action: link("/delete", "name", c.Name, "incarnation", string(c.Incarnation)), Once: newForm(),
	})
	return nil
}

// remove sends the deletion of the channel that the user saw.
func (s *Server) remove(w http.ResponseWriter, r *http.Request) error {
	fields, err := readForm(w, r)
	if err != nil {
		return err
	}
	q, err := query(r)
	if err != nil {
		return err
	}
	return s.submit(w, r, fields.Get("once"), func(ctx context.Context) (string, error) {
		c, err := s.seen(ctx, q.Get("name"), q.Get("incarnation"))
		if err != nil {
			return "", err
		}
		return link("/deleting", "name", c.Name, "incarnation", string(c.Incarnation)), s.deletions.Delete(ctx, c)
	})
}

// untilNext is after how many seconds the page of a deletion looks again.
const untilNext = 2

// deleting says whether readers still see a channel.
func (s *Server) deleting(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	c, err := s.site.Channel(r.Context(), q.Get("name"))
	if err != nil && !errors.Is(err, channels.ErrNoChannel) {
		return err
	}
	p := deletingPage{page: page{Title: "Deleting a channel"}, Name: q.Get("name")}
	if err == nil {
		p.Shown = string(c.Incarnation) == q.Get("incarnation")
		p.Anew = !p.Shown
	}
	if p.Shown {
		p.Refresh = untilNext
	} else {
		w.Header().Set("Clear-Site-Data", `"cache"`) // pages to which the browser could go back
	}
	s.show(w, http.StatusOK, "deleting.html", p)
	return nil
}
