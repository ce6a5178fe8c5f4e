package main

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/examples/microblog/channels"
)

// sample is a channel that is there at first.
type sample struct {
	name, owner string
	posts       []samplePost
}

type samplePost struct{ user, title, text string }

// samples are the channels of a new store.
func samples() []sample {
	welcome := sample{name: "Welcome", owner: "Millrace", posts: []samplePost{
		{"Millrace", "About this site", "This is a microblog: channels with posts, in two tables. Write a post at the end of this page, or make a channel of your own."},
		{"Millrace", "Try this", "Delete a channel. The web role only puts a message on a queue. The worker role marks the channel, so that it cannot be read any more, and deletes its posts page by page.\n\n" +
			"Then stop the program while it works. Run it with -data and a folder, kill it with kill -9, and start it again. It continues where it was, and the channel is never shown again."},
		{"Millrace", "Or watch a demonstration", "microblog demo makes a channel with thousands of posts, deletes it, and kills the worker again and again."},
	}}
	return []sample{welcome, diary()}
}

// diary is long enough for several pages.
func diary() sample {
	s := sample{name: "The mill's diary", owner: "Ann"}
	weather := []string{"Clear and cold.", "Rain since dawn.", "Fog on the race until noon.", "A dry wind from the east.", "Thaw; the ditch is full."}
	work := []string{
		"The water stood a hand below the sill, enough for one stone.", "Cleared weed from the grate, then ran both stones till dark.",
		"The miller of the lower mill came to borrow a bill and stayed for supper.", "Dressed the runner stone. It took all day, as it does.",
		"Eleven sacks in, eleven out. Nobody waited.", "The queue at the door was long in the morning and gone by noon.", "A cog broke. Apple wood, cut new ones.",
	}
	for day := range 52 {
		s.posts = append(s.posts, samplePost{
			user: []string{"Ann", "Tom"}[day%3/2], title: fmt.Sprintf("Day %d", day+1), text: weather[day%len(weather)] + " " + work[day%len(work)],
		})
	}
	return s
}

// writeSamples fills a new store.
func writeSamples(ctx context.Context, site *channels.Site) error {
	for _, s := range samples() {
		c, err := site.Create(ctx, s.name, s.owner)
		if err != nil {
			return err
		}
		for _, b := range s.posts {
			if _, err := site.Write(ctx, c, b.user, b.title, b.text); err != nil {
				return err
			}
		}
	}
	return nil
}
