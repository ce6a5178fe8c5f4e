package channels

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/table"
)

// Site is the data of the microblog. It is safe for concurrent use.
type Site struct {
	Channels table.Store // partition: the channel's name, escaped; row: ""
	Posts    table.Store // partition: the channel's name, escaped; row: when it was written, and a unique suffix
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

// Post is a text in a channel.
type Post struct {
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

	// ErrInvalid means that a name, title or text is empty or too long, or not text; or that a token is none.
	ErrInvalid = errors.New("invalid input")
)

// The properties of both tables.
const (
	createdOn   = "CreatedOn"
	incarnation = "Incarnation"
)

// The properties of a channel. Its state is live or deleting.
const (
	nameOf  = "Name"
	ownerOf = "Owner"
	stateOf = "State"

	live     = "live"
	deleting = "deleting"
)

// The properties of a post.
const (
	userOf  = "UserId"
	titleOf = "Title"
	textOf  = "Text"
)

// entity returns a channel as the table has it.
func (c Channel) entity() table.Entity {
	return table.Entity{Key: channelKey(c.Name), Properties: map[string]any{
		nameOf: c.Name, ownerOf: c.Owner, createdOn: c.Created, incarnation: string(c.Incarnation), stateOf: live,
	}}
}

func channelOf(e table.Entity) Channel {
	return Channel{
		Name: e.Text(nameOf), Owner: e.Text(ownerOf), Created: e.Time(createdOn), Incarnation: Incarnation(e.Text(incarnation)),
	}
}

func postOf(e table.Entity) Post {
	return Post{ID: e.Row, User: e.Text(userOf), Title: e.Text(titleOf), Text: e.Text(textOf), Created: e.Time(createdOn)}
}

// is reports whether the entity of a channel is of the incarnation.
func is(e table.Entity, of Incarnation) bool { return e.Text(incarnation) == string(of) }

// now returns the time as tables keep it.
func now() time.Time { return time.Now().UTC().Truncate(100 * time.Nanosecond) }

// invalid returns an error of the kind ErrInvalid.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}

// explain says on which channel an operation failed. What the table calls invalid came from our caller.
func explain(what, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, table.ErrInvalid):
		err = invalid("%w", err)
	}
	return fmt.Errorf("%s %q: %w", what, name, err)
}
