// Regions shows how sends survive the loss of a region. Two servers are the regions west and east.
// Kill one of them by hand:
//
//	go build -o millrace ./cmd/millrace && go build -o regions ./examples/regions
//
//	terminal 1: ./millrace serve -addr 127.0.0.1:10001 -data west
//	terminal 2: ./millrace serve -addr 127.0.0.1:10002 -data east
//	terminal 3: ./regions worker
//	terminal 4: ./regions producer
//
// The producer says where its orders go, and the worker how many it has handled. Now kill west in
// terminal 1, with Ctrl-C or kill -9. After a few seconds the producer says that its orders go to a
// backlog queue in east. Start west again: the producer says that its orders go to west, and the
// worker that the diverted orders have come home. Kill the worker while they do, and start it
// again: it may handle the few orders twice that it was copying. West can also fail in other ways:
//
//	terminal 5: ./millrace faults set 'put:403'  # nothing fails over: that is a misconfiguration
//	            ./millrace faults set '*:delay=15s'
//	            ./millrace faults clear
//
// A server with -data keeps its orders when it is killed. Real regions are two accounts:
//
//	./regions worker -west "$WEST" -east "$EAST"
//
// Without arguments the program plays all of this in a few seconds, and compares the accepted
// orders with the handled ones:
//
//	go run ./examples/regions
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/paired"
)

// The regions that millrace serve makes of this machine.
const (
	local = "DefaultEndpointsProtocol=http;AccountName=" + emulator.DevelopmentAccount + ";AccountKey=" + emulator.DevelopmentKey +
		";QueueEndpoint=http://127.0.0.1:%d/" + emulator.DevelopmentAccount + ";"
	westPort, eastPort = 10001, 10002
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "regions:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return play(ctx, out)
	}
	switch args[0] {
	case "worker", "producer":
	case "-h", "-help", "--help", "help":
		_, err := fmt.Fprintln(out, errUsage)
		return err
	default:
		return errUsage
	}
	flags := flag.NewFlagSet("regions "+args[0], flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the error says it
	west := flags.String("west", fmt.Sprintf(local, westPort), "the `location` of the primary region")
	east := flags.String("east", fmt.Sprintf(local, eastPort), "the `location` of the secondary region")
	switch err := flags.Parse(args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(out)
		flags.Usage()
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", errUsage, err)
	case flags.NArg() > 0:
		return fmt.Errorf("%w: %q is not a flag", errUsage, flags.Arg(0))
	}
	q, err := open(*west, *east, nil, nil, &paired.Options{FailoverInterval: 2 * time.Second, ProbeInterval: 2 * time.Second})
	if err != nil {
		return err
	}
	defer func() { _ = q.Close() }()
	l := newLedger(out)
	if args[0] == "producer" {
		return millrace.Run(ctx, newShop(q, l, 200*time.Millisecond))
	}
	w, err := newWorker(q, l, slog.Default())
	if err != nil {
		return err
	}
	return millrace.Run(ctx, w, &reporter{worker: w, out: out, halted: make(chan struct{})})
}

var errUsage = errors.New("usage: regions [worker | producer] [-west location] [-east location]")

// open pairs the queue "orders" of the west with backlog queues in the east. Transports are for tests and
// for the play; nil means HTTP.
func open(west, east string, westward, eastward *link, o *paired.Options) (*paired.Queue, error) {
	primary, err := azurequeue.Open(west, "orders", westward.options())
	if err != nil {
		return nil, err
	}
	secondary, err := azurequeue.Open(east, "orders", eastward.options())
	if err != nil {
		return nil, err
	}
	return paired.New(primary, secondary, o)
}
