package table_test

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/table"
)

// blogs returns a table of a channel's blogs.
func blogs(ctx context.Context) table.Store {
	s := table.Memory("blogs")
	for i, user := range []string{"ann", "bob", "ann", "eve", "ann"} {
		_, err := s.Insert(ctx, table.Entity{
			Key:        table.Key{Partition: "news", Row: fmt.Sprintf("2026-10-%02d", 20+i)},
			Properties: map[string]any{"User": user, "Likes": int64(i * 10)},
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	return s
}

// A page has a token for the next one, which may be used at any later time, such as by a link or by a message.
func ExampleStore_query() {
	ctx := context.Background()
	s := blogs(ctx)
	q := table.Query{Partition: "news", Top: 2}
	for {
		page, err := s.Query(ctx, q)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("a page:")
		for _, e := range page.Entities {
			fmt.Println(e.Row)
		}
		if page.Next == "" { // a page with fewer entities than Top need not be the last one
			return
		}
		q.Token = page.Next
	}
	// Output:
	// a page:
	// 2026-10-20
	// 2026-10-21
	// a page:
	// 2026-10-22
	// 2026-10-23
	// a page:
	// 2026-10-24
}

// A filter compares properties; the range of rows limits what the store reads.
func ExampleFilter() {
	ctx := context.Background()
	filter := table.And(table.Equal("User", "ann"), table.Greater("Likes", int64(0)))
	fmt.Println(filter)
	for e, err := range table.All(ctx, blogs(ctx), table.Query{Partition: "news", FromRow: "2026-10-21", Filter: filter}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(e.Row, e.Int("Likes"))
	}
	// Output:
	// (User eq 'ann') and (Likes gt 0L)
	// 2026-10-22 20
	// 2026-10-24 40
}
