package queue_test

import (
	"encoding/json"
	"testing"

	"github.com/millrace/millrace/queue"
)

func TestANameIsTextInJSON(t *testing.T) {
	for _, want := range []queue.Name{{Account: "shop", Queue: "orders"}, {Queue: "orders"}, {}} {
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got queue.Name
		if err := json.Unmarshal(text, &got); err != nil || got != want || string(text) != `"`+want.String()+`"` {
			t.Errorf("%s: got %+v, %v; want %+v", text, got, err, want)
		}
	}
}
