package channels_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/table"
)

// A channel that is marked is gone for everybody at once, and its name is free, while its blogs are still in the table.
func ExampleSite() {
	ctx := context.Background()
	site := &channels.Site{Channels: table.Memory("Channels"), Blogs: table.Memory("Blogs")}

	c, err := site.Create(ctx, "C#", "ann")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := site.Write(ctx, c, "bob", "Hello", "The first blog."); err != nil {
		log.Fatal(err)
	}
	_, blogs, _, err := site.Page(ctx, "C#", "", 10)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(blogs[0].User, "wrote:", blogs[0].Title)

	if err := site.BeginDeletion(ctx, c.Name, c.Incarnation); err != nil {
		log.Fatal(err)
	}
	_, _, _, err = site.Page(ctx, "C#", "", 10)
	fmt.Println(err, errors.Is(err, channels.ErrNoChannel))

	if _, err := site.Create(ctx, "C#", "carl"); err != nil {
		log.Fatal(err)
	}
	anew, blogs, _, err := site.Page(ctx, "C#", "", 10)
	fmt.Println(anew.Owner, "has", len(blogs), "blogs", err)

	found, _, err := site.DeleteBlogs(ctx, c.Name, c.Incarnation, "", 1000)
	fmt.Println("deleted:", found, err)
	// Output:
	// bob wrote: Hello
	// read channel "C#": there is no such channel true
	// carl has 0 blogs <nil>
	// deleted: 1 <nil>
}
