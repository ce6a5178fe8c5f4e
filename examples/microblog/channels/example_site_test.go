package channels_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/table"
)

// A channel that is marked is gone for everybody at once, and its name is free, while its posts are still in the table.
func ExampleSite() {
	ctx := context.Background()
	site := &channels.Site{Channels: table.Memory("Channels"), Posts: table.Memory("Blogs")}

	c, err := site.Create(ctx, "C#", "ann")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := site.Write(ctx, c, "bob", "Hello", "The first post."); err != nil {
		log.Fatal(err)
	}
	_, posts, _, err := site.Page(ctx, "C#", "", 10)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(posts[0].User, "wrote:", posts[0].Title)

	if err := site.BeginDeletion(ctx, c.Name, c.Incarnation); err != nil {
		log.Fatal(err)
	}
	_, _, _, err = site.Page(ctx, "C#", "", 10)
	fmt.Println(err, errors.Is(err, channels.ErrNoChannel))

	if _, err := site.Create(ctx, "C#", "carl"); err != nil {
		log.Fatal(err)
	}
	anew, posts, _, err := site.Page(ctx, "C#", "", 10)
	fmt.Println(anew.Owner, "has", len(posts), "posts", err)

	found, _, err := site.DeletePosts(ctx, c.Name, c.Incarnation, "", 1000)
	fmt.Println("deleted:", found, err)
	// Output:
	// bob wrote: Hello
	// read channel "C#": there is no such channel true
	// carl has 0 posts <nil>
	// deleted: 1 <nil>
}
