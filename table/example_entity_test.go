package table_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/table"
)

// An entity is inserted, read, changed under its version, and deleted.
func ExampleStore() {
	ctx := context.Background()
	channels := table.Memory("channels")
	news := table.Key{Partition: "news"}

	_, err := channels.Insert(ctx, table.Entity{Key: news, Properties: map[string]any{
		"Owner": "ann", "CreatedOn": time.Date(2026, 10, 29, 8, 0, 0, 0, time.UTC),
	}})
	if err != nil {
		fmt.Println(err)
	}
	channel, err := channels.Get(ctx, news)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(channel.Text("Owner"), channel.Time("CreatedOn").Format(time.DateOnly))

	channel.Properties["Owner"] = "bob"
	etag, err := channels.Update(ctx, channel)
	if err != nil {
		fmt.Println(err)
	}

	// A second writer that has read the same version as the first one fails.
	channel.Properties["Owner"] = "eve"
	_, err = channels.Update(ctx, channel)
	fmt.Println(errors.Is(err, table.ErrPreconditionFailed))
	fmt.Println(err)

	fmt.Println(channels.Delete(ctx, news, etag))
	_, err = channels.Get(ctx, news)
	fmt.Println(err)
	// Output:
	// ann 2026-10-29
	// true
	// update channels "news/": entity was changed since it was read
	// <nil>
	// get channels "news/": entity does not exist
}
