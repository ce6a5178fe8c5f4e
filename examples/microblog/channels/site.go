package channels

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/table"
)

// Site is the data of the microblog: two tables. It is safe for concurrent use.
type Site struct {
	Channels table.Store // partition: the channel's name, escaped; row: ""
	Blogs    table.Store // partition: the channel's name, escaped; row: when it was written, and a unique suffix
}

// Incarnation distinguishes channels that have had the same name, one after the other.
type Incarnation string

// Channel is a channel that exists and is not being deleted.
type Channel struct {
	Name        string // as its owner wrote it: any text
	Owner       string
	Created     time.Time
	Incarnation Incarnation
}

// Blog is a text in a channel.
type Blog struct {
	ID      string // unique in its channel
	User    string
	Title   string
	Text    string
	Created time.Time
}

// Errors of a site.
var (
	// ErrNoChannel means that there is no channel of this name, or that it is being deleted.
	ErrNoChannel = errors.New("there is no such channel")

	// ErrChannelExists means that there is a channel of this name.
	ErrChannelExists = errors.New("there is a channel of this name already")

	// ErrInvalid means that a name, title or text is empty or too long, or not text.
	ErrInvalid = errors.New("invalid input")
)

// Create makes a channel, also in the place of one that is being deleted.
func (s *Site) Create(ctx context.Context, name, owner string) (Channel, error) {
	panic("not written yet")
}

// Channel returns a channel, or ErrNoChannel.
func (s *Site) Channel(ctx context.Context, name string) (Channel, error) { panic("not written yet") }

// List returns a page of channels in the order of their names, and where the next page begins.
func (s *Site) List(ctx context.Context, token table.Token, top int) ([]Channel, table.Token, error) {
	panic("not written yet")
}

// Write adds a blog to a channel.
func (s *Site) Write(ctx context.Context, c Channel, user, title, text string) (Blog, error) {
	panic("not written yet")
}

// Page returns a page of a channel's blogs, and where the next page begins. It returns nothing of a channel that was
// being deleted when the page was complete.
func (s *Site) Page(ctx context.Context, name string, token table.Token, top int) (Channel, []Blog, table.Token, error) {
	panic("not written yet")
}
