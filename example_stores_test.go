package millrace_test

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/stores"
	"github.com/millrace/millrace/table"
)

// A directory on a laptop, an account in Azure: only the setting differs.
func Example_stores() {
	dir, err := os.MkdirTemp("", "stores")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	location := os.Getenv("REPORT_STORE") // such as https://ACCOUNT.blob.core.windows.net
	if location == "" {
		location = dir
	}

	blobs, err := stores.OpenBlobs(location, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer blobs.Close()
	tables, err := stores.OpenTables(location, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tables.Close()
	reports, err := tables.Table("Reports")
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx := context.Background()
	text := blob.Ref{Container: "reports", Name: "november.txt"}
	if err := blobs.Put(ctx, text, strings.NewReader("all is well"), nil); err != nil {
		fmt.Println(err)
		return
	}
	key := table.Key{Partition: "2026", Row: "november"}
	if _, err := reports.Insert(ctx, table.Entity{Key: key, Properties: map[string]any{"Text": text.String()}}); err != nil {
		fmt.Println(err)
		return
	}

	for report, err := range table.All(ctx, reports, table.Query{Partition: "2026"}) {
		fmt.Println(report.Key, report.Text("Text"), err)
	}
	// Output: 2026/november blob://reports/november.txt <nil>
}
