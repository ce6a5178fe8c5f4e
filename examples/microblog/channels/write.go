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

// lookTimeout is how long a writer tries to find out whether its blog came too late, and then to delete it, whatever its
// caller says: what it leaves, others have to sweep.
const lookTimeout = 5 * time.Second

// rowTime has a fixed width, so that the order of its texts is that of the times.
const rowTime = "20060102T150405.0000000"

var (
	errSlow   = fmt.Errorf("writing took longer than %v", WriteTimeout)
	errNoLook = fmt.Errorf("the blog is written; whether the channel still exists took longer than %v to find out", lookTimeout)
)

// Write adds a blog to a channel. The error is [ErrNoChannel] if the channel was deleted, also if it was made anew
// since c was read; then nobody sees the blog. It is [ErrInvalid]; after any other the blog may be there. A context that
// ends after the blog is stored makes no difference.
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
		return Blog{}, err // if it took effect, or will, it does so in time for the second deletion
	}
	return b, s.lookAgain(ctx, c, b)
}

// lookAgain deletes the blog if the channel is gone: who deletes the channel may have looked for blogs before ours came.
// Nobody sees the blog then, and it is swept if this fails.
func (s *Site) lookAgain(ctx context.Context, c Channel, b Blog) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), lookTimeout, errNoLook)
	defer cancel()
	err := s.same(ctx, c)
	if errors.Is(err, ErrNoChannel) {
		_ = persist(ctx, func() error { return s.Blogs.Delete(ctx, blogKey(c, b), table.Any) })
	}
	return err
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

func blogKey(c Channel, b Blog) table.Key {
	return table.Key{Partition: partitionOf(c.Name), Row: b.ID}
}
