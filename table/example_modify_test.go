package table_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/millrace/millrace/table"
)

// Several writers add to the same entities, and no addition is lost: who comes second reads again.
func ExampleModify() {
	ctx := context.Background()
	index := table.Memory("keywords")
	titles := map[string][]string{"Harbour": {"sea", "night"}, "Storm": {"sea"}, "Lighthouse": {"night", "sea"}}

	var transcoders sync.WaitGroup
	for title, keywords := range titles {
		transcoders.Go(func() {
			for _, keyword := range keywords {
				_, err := table.Modify(ctx, index, table.Key{Partition: keyword}, func(e *table.Entity) error {
					if e.Bool(title) {
						return table.ErrUnchanged // it was added before
					}
					e.Properties[title] = true
					return nil
				}, nil)
				if err != nil {
					fmt.Println(err)
				}
			}
		})
	}
	transcoders.Wait()

	for e, err := range table.All(ctx, index, table.Query{}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(e.Partition, len(e.Properties))
	}
	// Output:
	// night 2
	// sea 3
}
