package aztable_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/table/aztable"
)

// A table of an account. Here a service in this process responds; without the Transport it would be the one at the
// location.
func ExampleOpen() {
	channels, err := aztable.Open("UseDevelopmentStorage=true", "Channels", &aztable.Options{Transport: newService()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer channels.Close()

	ctx := context.Background()
	k := table.Key{Partition: "Channel9"}
	first, err := channels.Insert(ctx, table.Entity{Key: k, Properties: map[string]any{"Owner": "ann"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = table.Modify(ctx, channels, k, func(e *table.Entity) error {
		e.Properties["Owner"] = "bob"
		return nil
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	err = channels.Delete(ctx, k, first)
	fmt.Println("somebody was faster:", errors.Is(err, table.ErrPreconditionFailed))

	for e, err := range table.All(ctx, channels, table.Query{Filter: table.Equal("Owner", "bob")}) {
		fmt.Println(e.Key, e.Text("Owner"), err)
	}
	// Output:
	// somebody was faster: true
	// Channel9/ bob <nil>
}

// An address with a shared access signature, of one table. Nothing is sent yet.
func ExampleOpen_signature() {
	_, err := aztable.Open("https://acct.table.core.windows.net/Channels?sv=2024-11-04&tn=channels&sp=raud&sig=c2lnbmF0dXJl", "Blogs", nil)
	fmt.Println(err)
	// Output:
	// open the table: invalid argument: the location is that of another table than Blogs; leave out what follows the account
}
