package channels

import (
	"context"
	"crypto/rand"
	"slices"

	"github.com/millrace/millrace/table"
)

// Create makes a channel, also in the place of one that is being deleted. The error is [ErrChannelExists],
// [ErrInvalid], or that of the table: if that is table.ErrUnavailable the channel may exist.
func (s *Site) Create(ctx context.Context, name, owner string) (Channel, error) {
	c := Channel{Name: name, Owner: owner, Created: now()}
	for _, err := range []error{CheckName(name), checkText("the name of the owner", owner, MaxName, "")} {
		if err != nil {
			return Channel{}, explain("create channel", name, err)
		}
	}
	var ours []Incarnation // of all tries
	err := modify(ctx, s.Channels, channelKey(name), func(e *table.Entity) error {
		if found := channelOf(*e).Incarnation; slices.Contains(ours, found) { // by an earlier try, whose answer was lost
			c.Incarnation = found
			return table.ErrUnchanged
		}
		if e.ETag != "" && e.Text(stateOf) != deleting {
			return ErrChannelExists
		}
		// The deletion of the channel before goes on: it looks for another incarnation, and the ETag is a new one. Each try
		// has an incarnation of its own: if the network delivers one when the channel has been deleted again, that makes
		// a channel that nobody has used, and does not bring the deleted one back.
		c.Incarnation = Incarnation(rand.Text())
		ours = append(ours, c.Incarnation)
		e.Properties = c.entity().Properties
		return nil
	})
	if err != nil {
		return Channel{}, explain("create channel", name, err)
	}
	return c, nil
}
