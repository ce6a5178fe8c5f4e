package main

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/examples/microblog/channels"
)

// sample is a channel that is there at first.
type sample struct {
	name, owner string
	blogs       []sampleBlog
}

type sampleBlog struct{ user, title, text string }

// samples are what a new store has, so that there is something to see.
func samples() []sample {
	welcome := sample{name: "Welcome", owner: "Millrace", blogs: []sampleBlog{
		{"Millrace", "What this is", "A microblog: channels, and blogs in them, in two tables. Write something at the end of this page, or make a channel of your own."},
		{"Millrace", "What to try", "Delete a channel. The web role only puts a message on a queue; the worker role marks the channel, so that nobody reads it from then on, and deletes its blogs page by page.\n\n" +
			"Then stop the program while it works. Run it with -data and a folder, kill it as hard as you like, and start it again: it goes on where it was, and nothing of the channel is ever shown again."},
		{"Millrace", "Or let it be done", "microblog demo makes a channel with thousands of blogs, deletes it, kills the worker again and again meanwhile, and says what became of it."},
	}}
	odd := sample{name: `100 % <b>safe</b> & "quoted" ../`, owner: "O'Hara <ann@example.com>", blogs: []sampleBlog{
		{"<script>alert(1)</script>", "Any text is a name", "Names, titles and texts are shown as they were typed: <img src=x onerror=alert(1)>, 5 < 6, c:\\temp, %00 and 🦫."},
		{"אבג", "שלום", "Text that runs from right to left stays where it is, and changes nothing around it."},
	}}
	return []sample{odd, diary(), welcome}
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
		s.blogs = append(s.blogs, sampleBlog{
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
		for _, b := range s.blogs {
			if _, err := site.Write(ctx, c, b.user, b.title, b.text); err != nil {
				return err
			}
		}
	}
	return nil
}
