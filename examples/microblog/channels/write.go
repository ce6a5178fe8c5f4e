package channels

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/table"
)

// WriteTimeout is how long [Site.Write] may take from its first look at the channel to the blog. A blog that arrives
// in a channel that is gone does so within this time after the channel was marked.
const WriteTimeout = 30 * time.Second

// takeBackTimeout is how long a writer tries to delete a blog that came too late.
const takeBackTimeout = 5 * time.Second

// rowTime has a fixed width, so that the order of its texts is that of the times.
const rowTime = "20060102T150405.0000000"

var errSlow = fmt.Errorf("writing took longer than %v", WriteTimeout)

// Write adds a blog to a channel. The error is [ErrNoChannel] if the channel was deleted, also if it was made anew
// since c was read; then the blog is not there. It is [ErrInvalid]; or that of a table: then the blog may be there.
func (s *Site) Write(ctx context.Context, c Channel, user, title, text string) (Blog, error) {
	b, err := s.write(ctx, c, user, title, text)
	if err != nil {
		return Blog{}, explain("write to channel", c.Name, err)
	}
	return b, nil
}

func (s *Site) write(ctx context.Context, c Channel, user, title, text string) (Blog, error) {
	if err := checkBlog(user, title, text); err != nil {
		return Blog{}, err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, WriteTimeout, errSlow)
	defer cancel()
	if err := s.same(bounded, c); err != nil {
		return Blog{}, err
	}
	b := Blog{User: user, Title: title, Text: text, Created: now()}
	b.ID = b.Created.Format(rowTime) + "-" + rand.Text()
	if err := s.insert(bounded, c, b); err != nil {
		return Blog{}, err
	}
	// Who deletes the channel may have looked for blogs before ours came.
	err := s.same(bounded, c)
	if errors.Is(err, ErrNoChannel) {
		s.takeBack(ctx, c, b)
	}
	return b, err
}

// insert stores a blog. Its key is unique: if it exists, an earlier try has stored it.
func (s *Site) insert(ctx context.Context, c Channel, b Blog) error {
	e := table.Entity{Key: blogKey(c, b), Properties: map[string]any{
		userOf: b.User, titleOf: b.Title, textOf: b.Text, createdOn: b.Created, incarnation: string(c.Incarnation),
	}}
	err := persist(ctx, func() error { _, err := s.Blogs.Insert(ctx, e); return err })
	if errors.Is(err, table.ErrExists) {
		return nil
	}
	return err
}

// takeBack deletes a blog that came too late, also if the writer's context has ended. Nobody sees the blog, and it
// is swept if this fails.
func (s *Site) takeBack(ctx context.Context, c Channel, b Blog) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackTimeout)
	defer cancel()
	_ = persist(ctx, func() error { return s.Blogs.Delete(ctx, blogKey(c, b), table.Any) })
}

func blogKey(c Channel, b Blog) table.Key {
	return table.Key{Partition: partitionOf(c.Name), Row: b.ID}
}
