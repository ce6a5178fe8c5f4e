package millrace_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// Five jobs in one message. One of them fails at first, and is tried again without the others; another
// one is no use trying, and waits in the poison queue.
func Example_group() {
	type Letter struct{ To string }
	ctx := context.Background()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	letters := engine.Queue(queue.Name{Queue: "letters"})
	p := producer.New(letters, &producer.Options[Letter]{Create: true})
	if _, err := p.SendGroup(ctx, []Letter{{"Ann"}, {"Bob"}, {""}, {"Dan"}, {"Eve"}}, &producer.SendOptions{JobID: "mail 7"}); err != nil {
		fmt.Println(err)
		return
	}

	deliver := func(_ context.Context, m *listener.Message[Letter]) error {
		switch {
		case m.Body.To == "":
			return listener.Poison(errors.New("a letter to nobody"))
		case m.Body.To == "Bob" && m.Attempt == 1:
			return listener.Retry(0, errors.New("nobody at home"))
		}
		fmt.Printf("%s, item %d of %d: to %s, attempt %d\n", m.Job, m.Item, m.Items, m.Body.To, m.Attempt)
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	o := &listener.Options[Letter]{Logger: silent}
	o.Observer.Settled = func(_ listener.Delivery, outcome listener.Outcome, _ time.Duration) {
		if outcome == listener.Poisoned {
			stop()
		}
	}
	// More than 1 lets EachItem deliver several letters at once; their order is then left to chance.
	if err := millrace.Run(ctx, listener.New(letters, listener.EachItem(deliver, 1), o)); err != nil {
		fmt.Println(err)
	}

	for r, err := range poison.List(context.Background(), letters, nil) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(r.Job+":", r.Error)
	}
	// Output:
	// mail 7, item 0 of 5: to Ann, attempt 1
	// mail 7, item 3 of 5: to Dan, attempt 1
	// mail 7, item 4 of 5: to Eve, attempt 1
	// mail 7, item 1 of 5: to Bob, attempt 2
	// mail 7: of 5 items 1 failed for good at earlier deliveries (item 2: a letter to nobody)
}
