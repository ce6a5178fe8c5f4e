package channels

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/table"
)

// BeginDeletion marks a channel: from now on nobody reads it or writes to it. It does nothing to another
// incarnation, and nothing if the channel is marked or gone.
func (s *Site) BeginDeletion(ctx context.Context, name string, of Incarnation) error {
	if err := checkDeletion(name, of); err != nil {
		return err
	}
	err := modify(ctx, s.Channels, channelKey(name), func(e *table.Entity) error {
		if !is(*e, of) || e.Text(stateOf) == deleting {
			return table.ErrUnchanged
		}
		e.Properties[stateOf] = deleting
		return nil
	})
	return explain("mark channel", name, err)
}

// DeletePosts deletes a page of the posts of an incarnation, at most top, 1 to 1,000. It returns how many there were,
// and where the next page begins: "" at the end. Those that others delete at the same time count too. Posts may come
// before that place later, so only a pass over all pages that finds none shows that there is none. A token that the table
// does not accept is [ErrInvalid]: begin without one.
func (s *Site) DeletePosts(ctx context.Context, name string, of Incarnation, token table.Token, top int) (found int, next table.Token, err error) {
	if err := checkDeletion(name, of); err != nil {
		return 0, "", err
	}
	q := postsOf(name, of)
	q.Token, q.Top = token, top
	page, err := query(ctx, s.Posts, q)
	if err == nil {
		err = s.deletePosts(ctx, page.Entities)
	}
	return len(page.Entities), page.Next, explain("delete posts of channel", name, err)
}

// EndDeletion deletes the entity of a channel that is marked. It does nothing to another incarnation, and nothing if
// the channel is gone.
func (s *Site) EndDeletion(ctx context.Context, name string, of Incarnation) error {
	if err := checkDeletion(name, of); err != nil {
		return err
	}
	return explain("delete channel", name, s.deleteChannel(ctx, channelKey(name), of))
}

func (s *Site) deleteChannel(ctx context.Context, k table.Key, of Incarnation) error {
	e, err := get(ctx, s.Channels, k)
	switch {
	case errors.Is(err, table.ErrMissing):
		return nil
	case err != nil:
		return err
	case !is(e, of):
		return nil
	case e.Text(stateOf) != deleting:
		return errors.New("it is not marked")
	}
	err = persist(ctx, func() error { return s.Channels.Delete(ctx, k, e.ETag) })
	// The only change of a channel that is marked is that one with another incarnation takes its place.
	if errors.Is(err, table.ErrMissing) || errors.Is(err, table.ErrPreconditionFailed) {
		return nil
	}
	return err
}

// checkDeletion returns what is wrong with the name and incarnation of a channel, [ErrInvalid].
func checkDeletion(name string, of Incarnation) error {
	if of == "" {
		return invalid("there is no incarnation")
	}
	return CheckName(name)
}

// maxGroup is how many changes of a partition can be made together.
const maxGroup = 100

// deletePosts deletes posts of one partition in groups.
func (s *Site) deletePosts(ctx context.Context, posts []table.Entity) error {
	for group := range slices.Chunk(posts, maxGroup) {
		changes := make([]table.Change, len(group))
		for i, e := range group {
			changes[i] = table.Deleting(e.Key, e.ETag)
		}
		err := persist(ctx, func() error { _, err := s.Posts.Apply(ctx, changes); return err })
		if gone(err) { // others delete them too, or an earlier try has
			err = s.deleteEach(ctx, group)
		}
		if err != nil {
			return fmt.Errorf("a group of %d posts: %w", len(group), err)
		}
	}
	return nil
}

func (s *Site) deleteEach(ctx context.Context, posts []table.Entity) error {
	for _, e := range posts {
		if err := persist(ctx, func() error { return s.Posts.Delete(ctx, e.Key, e.ETag) }); err != nil && !gone(err) {
			return err
		}
	}
	return nil
}

// gone reports whether an error of a deletion says that this version of the post is not there. Posts are never changed.
func gone(err error) bool {
	return errors.Is(err, table.ErrMissing) || errors.Is(err, table.ErrPreconditionFailed)
}
