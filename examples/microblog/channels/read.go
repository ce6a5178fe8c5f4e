package channels

import (
	"context"
	"errors"

	"github.com/millrace/millrace/table"
)

// Channel returns a channel, or [ErrNoChannel].
func (s *Site) Channel(ctx context.Context, name string) (Channel, error) {
	c, err := s.current(ctx, name)
	return c, explain("channel", name, err)
}

// current returns the channel that has a name now.
func (s *Site) current(ctx context.Context, name string) (Channel, error) {
	if err := CheckName(name); err != nil {
		return Channel{}, err
	}
	e, err := get(ctx, s.Channels, channelKey(name))
	switch {
	case errors.Is(err, table.ErrMissing):
		return Channel{}, ErrNoChannel
	case err != nil:
		return Channel{}, err
	case e.Text(stateOf) == deleting:
		return Channel{}, ErrNoChannel
	}
	return channelOf(e), nil
}

// same returns ErrNoChannel unless the channel exists in the same incarnation and is not marked.
func (s *Site) same(ctx context.Context, c Channel) error {
	found, err := s.current(ctx, c.Name)
	if err == nil && found.Incarnation != c.Incarnation {
		return ErrNoChannel
	}
	return err
}

// List returns a page of channels in the order of their names, at most top, 1 to 1,000, and where the next page begins:
// "" at the end. Each channel of the page was not being deleted when it was read; that may have changed since.
func (s *Site) List(ctx context.Context, token table.Token, top int) ([]Channel, table.Token, error) {
	if err := checkTop(top); err != nil {
		return nil, "", explain("list", "channels", err)
	}
	var all []Channel
	q := table.Query{Filter: table.Equal(stateOf, live), Top: top, Token: token}
	for {
		page, err := query(ctx, s.Channels, q)
		if err != nil {
			return nil, "", explain("list", "channels", err)
		}
		for _, e := range page.Entities {
			all = append(all, channelOf(e))
		}
		// A page may end where a partition does, and each channel is one.
		if q.Token, q.Top = page.Next, top-len(all); q.Token == "" || q.Top == 0 {
			return all, q.Token, nil
		}
	}
}

// Page returns a page of a channel's posts, the oldest first, at most top, 1 to 1,000, and where the next page
// begins: "" at the end. It returns nothing but [ErrNoChannel] if the channel was being deleted when the page was
// complete, or was another one.
func (s *Site) Page(ctx context.Context, name string, token table.Token, top int) (Channel, []Post, table.Token, error) {
	c, posts, next, err := s.page(ctx, name, token, top)
	if err != nil {
		return Channel{}, nil, "", explain("read channel", name, err)
	}
	return c, posts, next, nil
}

func (s *Site) page(ctx context.Context, name string, token table.Token, top int) (Channel, []Post, table.Token, error) {
	if err := checkTop(top); err != nil {
		return Channel{}, nil, "", err
	}
	c, err := s.current(ctx, name)
	if err != nil {
		return Channel{}, nil, "", err
	}
	q := postsOf(c.Name, c.Incarnation)
	q.Top, q.Token = top, token
	var posts []Post
	for more := true; more; more = len(posts) == 0 && q.Token != "" { // past posts of channels before
		p, err := query(ctx, s.Posts, q)
		if err != nil {
			return Channel{}, nil, "", err
		}
		for _, e := range p.Entities {
			posts = append(posts, postOf(e))
		}
		q.Token = p.Next
	}
	// The channel last: a mark that came before this is seen, whatever the page has.
	return c, posts, q.Token, s.same(ctx, c)
}

// maxTop is the largest page of a table.
const maxTop = 1000

func checkTop(top int) error {
	if top < 1 || top > maxTop {
		return invalid("a page of %d: it may have 1 to %d", top, maxTop)
	}
	return nil
}

func postsOf(name string, of Incarnation) table.Query {
	return table.Query{Partition: partitionOf(name), Filter: table.Equal(incarnation, string(of))}
}
