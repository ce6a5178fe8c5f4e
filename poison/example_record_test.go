package poison_test

import (
	"fmt"

	"github.com/millrace/millrace/poison"
)

func ExampleParseRecord() {
	r, err := poison.ParseRecord(`{"millracePoison":1,"reason":"attempts","error":"no stock",
		"account":"acme","queue":"orders","id":"m-1","dequeueCount":5,"attempts":5,
		"inserted":"2026-11-21T08:00:00Z","poisoned":"2026-11-21T08:10:00Z","text":"{\"ID\":\"7\"}"}`)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Queue, r.Reason, r.Error, r.Text)
	// Output: orders attempts no stock {"ID":"7"}
}
