package table_test

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/table"
)

// A group moves an entity to another row of its partition: never is it in both, or in neither.
func ExampleStore_apply() {
	ctx := context.Background()
	jobs := table.Memory("jobs")
	waiting := table.Entity{Key: table.Key{Partition: "ann", Row: "waiting-1"}, Properties: map[string]any{"Film": "Harbour"}}
	etag, err := jobs.Insert(ctx, waiting)
	if err != nil {
		fmt.Println(err)
	}
	done := waiting.Clone()
	done.Row = "done-1"

	move := []table.Change{table.Inserting(done), table.Deleting(waiting.Key, etag)}
	_, err = jobs.Apply(ctx, move)
	fmt.Println(err)

	// Made once more, the group fails as a whole.
	_, err = jobs.Apply(ctx, move)
	fmt.Println(err)

	page, err := jobs.Query(ctx, table.Query{Partition: "ann"})
	for _, e := range page.Entities {
		fmt.Println(e.Row, e.Text("Film"), err)
	}
	// Output:
	// <nil>
	// apply jobs "ann/done-1": entity already exists
	// done-1 Harbour <nil>
}
