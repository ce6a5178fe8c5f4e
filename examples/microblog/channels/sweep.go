package channels

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/table"
)

// Sweep looks at all posts of all channels and deletes those that are older than [WriteTimeout] and whose incarnation
// is not that of a channel, marked or not: what nobody can see, and no deletion will find. It returns how many it has deleted
// at least, also with an error.
func (s *Site) Sweep(ctx context.Context) (deleted int, err error) {
	q := table.Query{}
	for more := true; more; more = q.Token != "" {
		page, err := query(ctx, s.Posts, q)
		if err != nil {
			return deleted, explain("sweep", "posts", err)
		}
		for _, posts := range byPartition(page.Entities) {
			n, err := s.sweepPartition(ctx, posts)
			if deleted += n; err != nil {
				return deleted, explain("sweep", "posts", err)
			}
		}
		q.Token = page.Next
	}
	return deleted, nil
}

// sweepPartition deletes those posts of one partition that belong to no channel. The channel is read after the
// posts: an incarnation that is not the current one then, and has been, will never be again.
func (s *Site) sweepPartition(ctx context.Context, posts []table.Entity) (deleted int, err error) {
	channel, err := get(ctx, s.Channels, table.Key{Partition: posts[0].Partition})
	if err != nil && !errors.Is(err, table.ErrMissing) {
		return 0, err
	}
	var orphans []table.Entity
	for _, e := range posts {
		current := err == nil && e.Text(incarnation) == channel.Text(incarnation)
		if !current && time.Since(e.Modified) > WriteTimeout {
			orphans = append(orphans, e)
		}
	}
	if err := s.deletePosts(ctx, orphans); err != nil {
		return 0, err
	}
	return len(orphans), nil
}

// byPartition splits entities, which are in the order of their keys.
func byPartition(entities []table.Entity) (parts [][]table.Entity) {
	for begin, i := 0, 0; i < len(entities); i++ {
		if i+1 == len(entities) || entities[i+1].Partition != entities[begin].Partition {
			parts = append(parts, entities[begin:i+1])
			begin = i + 1
		}
	}
	return parts
}
