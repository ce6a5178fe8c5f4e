package codec_test

import (
	"context"
	"fmt"
	"log"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// What consumers other than Millrace read: text as it is, and bytes in Base64.
func ExampleText() {
	ctx := context.Background()
	engine, err := localqueue.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	q := engine.Queue(queue.Name{Queue: "jobs"})
	text := producer.New(q, &producer.Options[string]{Create: true, Codec: codec.Text(), Format: codec.Plain})
	if _, err := text.Send(ctx, "ship order 7", nil); err != nil {
		log.Fatal(err)
	}
	bytes := producer.New(q, &producer.Options[[]byte]{Codec: codec.Bytes(), Format: codec.Base64})
	if _, err := bytes.Send(ctx, []byte{0xff, 0xd8}, nil); err != nil {
		log.Fatal(err)
	}
	messages, err := q.Peek(ctx, 2)
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range messages {
		fmt.Println(m.Text)
	}
	// Output:
	// ship order 7
	// /9g=
}
