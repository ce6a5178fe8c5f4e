package channels

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/table"
)

// WriteTimeout is how long [Site.Write] may take from its first look at the channel to the post. A post that arrives
// in a channel that is gone does so within this time after the channel was marked.
const WriteTimeout = 30 * time.Second

// lookTimeout is how long a writer tries to find out whether its post came too late, and then to delete it, whatever its
// caller says: what it leaves, others have to sweep.
const lookTimeout = 5 * time.Second

// rowTime has a fixed width, so that the order of its texts is that of the times.
const rowTime = "20060102T150405.0000000"

var (
	errSlow   = fmt.Errorf("writing took longer than %v", WriteTimeout)
	errNoLook = fmt.Errorf("the post is written; whether the channel still exists took longer than %v to find out", lookTimeout)
)

// Write adds a post to a channel. The error is [ErrNoChannel] if the channel was deleted, also if it was made anew
// since c was read; then nobody sees the post. It is [ErrInvalid]; after any other the post may be there. A context that
// ends after the post is stored makes no difference.
func (s *Site) Write(ctx context.Context, c Channel, user, title, text string) (Post, error) {
	b, err := s.write(ctx, c, user, title, text)
	if err != nil {
		return Post{}, explain("write to channel", c.Name, err)
	}
	return b, nil
}

func (s *Site) write(ctx context.Context, c Channel, user, title, text string) (Post, error) {
	if err := checkPost(user, title, text); err != nil {
		return Post{}, err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, WriteTimeout, errSlow)
	defer cancel()
	if err := s.same(bounded, c); err != nil {
		return Post{}, err
	}
	b := Post{User: user, Title: title, Text: text, Created: now()}
	b.ID = b.Created.Format(rowTime) + "-" + rand.Text()
	if err := s.insert(bounded, c, b); err != nil {
		return Post{}, err // if it took effect, or will, it does so in time for the second deletion
	}
	return b, s.lookAgain(ctx, c, b)
}

// lookAgain deletes the post if the channel is gone: who deletes the channel may have looked for posts before ours came.
// Nobody sees the post then, and it is swept if this fails.
func (s *Site) lookAgain(ctx context.Context, c Channel, b Post) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), lookTimeout, errNoLook)
	defer cancel()
	err := s.same(ctx, c)
	if errors.Is(err, ErrNoChannel) {
		_ = persist(ctx, func() error { return s.Posts.Delete(ctx, postKey(c, b), table.Any) })
	}
	return err
}

// insert stores a post. Its key is unique: if it exists, an earlier try has stored it.
func (s *Site) insert(ctx context.Context, c Channel, b Post) error {
	e := table.Entity{Key: postKey(c, b), Properties: map[string]any{
		userOf: b.User, titleOf: b.Title, textOf: b.Text, createdOn: b.Created, incarnation: string(c.Incarnation),
	}}
	err := persist(ctx, func() error { _, err := s.Posts.Insert(ctx, e); return err })
	if errors.Is(err, table.ErrExists) {
		return nil
	}
	return err
}

func postKey(c Channel, b Post) table.Key {
	return table.Key{Partition: partitionOf(c.Name), Row: b.ID}
}
