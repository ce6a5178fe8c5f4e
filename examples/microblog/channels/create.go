package channels

import (
	"context"
	"crypto/rand"

	"github.com/millrace/millrace/table"
)

// Create makes a channel, also in the place of one that is being deleted. The error is [ErrChannelExists],
// [ErrInvalid], or that of the table: if that is table.ErrUnavailable the channel may exist.
func (s *Site) Create(ctx context.Context, name, owner string) (Channel, error) {
	c := Channel{Name: name, Owner: owner, Created: now(), Incarnation: Incarnation(rand.Text())}
	for _, err := range []error{CheckName(name), checkText("the name of the owner", owner, MaxName, "")} {
		if err != nil {
			return Channel{}, explain("create channel", name, err)
		}
	}
	err := modify(ctx, s.Channels, channelKey(name), func(e *table.Entity) error {
		switch {
		case is(*e, c.Incarnation): // an earlier try, whose answer was lost
			return table.ErrUnchanged
		case e.ETag != "" && e.Text(stateOf) != deleting:
			return ErrChannelExists
		}
		// The deletion of the channel before goes on: it looks for another incarnation, and the ETag is a new one.
		e.Properties = c.entity().Properties
		return nil
	})
	if err != nil {
		return Channel{}, explain("create channel", name, err)
	}
	return c, nil
}
