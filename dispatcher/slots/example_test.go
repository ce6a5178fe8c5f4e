package slots_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// At most eight handlers run at once, whatever comes. Two of the slots are left for urgent jobs, and of
// the others they get three times as many as reports while there are enough of both.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	account, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	urgent, reports := account.Queue(queue.Name{Queue: "urgent"}), account.Queue(queue.Name{Queue: "reports"})
	for _, q := range []queue.Queue{urgent, reports} {
		if _, err := producer.New[string](q, &producer.Options[string]{Create: true}).Send(ctx, "a job", nil); err != nil {
			fmt.Println(err)
			return
		}
	}

	shared, err := slots.NewShared(&slots.SharedOptions{Slots: 8})
	if err != nil {
		fmt.Println(err)
		return
	}
	handled := make(chan string)
	handle := func(_ context.Context, m *listener.Message[string]) error {
		handled <- m.Queue.Queue
		return nil
	}
	listen := func(q queue.Queue, o *slots.MemberOptions) *listener.Listener[string] {
		return listener.New(q, handle, &listener.Options[string]{Slots: shared.Member(o), Logger: slog.New(slog.DiscardHandler)})
	}
	ended := make(chan error)
	first := listen(urgent, &slots.MemberOptions{Name: "urgent", Weight: 3, Reserve: 2})
	second := listen(reports, &slots.MemberOptions{Name: "reports"})
	go func() { ended <- millrace.Run(ctx, first, second) }()

	seen := map[string]bool{<-handled: true, <-handled: true}
	fmt.Println("urgent:", seen["urgent"], "reports:", seen["reports"])
	stop()
	fmt.Println(<-ended)
	// Output:
	// urgent: true reports: true
	// <nil>
}
