package listener_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// Newsletter is a job that is done in portions.
type Newsletter struct{ To []string }

// Save replaces the job while it is handled: what was done before a failure is not done again.
func ExampleMessage_save() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := engine.Queue(queue.Name{Queue: "newsletters"})
	p := producer.New(q, &producer.Options[Newsletter]{Create: true})
	if _, err := p.Send(ctx, Newsletter{To: []string{"ann", "bob", "cid"}}, nil); err != nil {
		fmt.Println(err)
		return
	}
	send := func(ctx context.Context, m *listener.Message[Newsletter]) error {
		for len(m.Body.To) > 0 {
			if m.Body.To[0] == "bob" && m.Attempt == 1 {
				return listener.Retry(0, errors.New("bob's server is down"))
			}
			fmt.Println("attempt", m.Attempt, "to", m.Body.To[0])
			if err := m.Save(ctx, Newsletter{To: m.Body.To[1:]}); err != nil {
				return err
			}
		}
		stop()
		return nil
	}
	if err := listener.New(q, send, nil).Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// attempt 1 to ann
	// attempt 2 to bob
	// attempt 2 to cid
}
