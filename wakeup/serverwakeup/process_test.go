package serverwakeup_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/internal/killtest"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/localqueue/filequeue"
	"github.com/millrace/millrace/wakeup/serverwakeup"
)

// These variables make the test binary a worker, or a server with its data in a directory.
const (
	workerVariable = "SERVERWAKEUP_TEST_WORKER"
	serverVariable = "SERVERWAKEUP_TEST_SERVER"
	dataVariable   = "SERVERWAKEUP_TEST_DATA"
)

// exitOn ends a process of a test.
func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "process of a test:", err)
		os.Exit(1)
	}
}

func runServer(address, directory string) {
	engine, err := filequeue.Open(directory, nil)
	exitOn(err)
	endpoint, err := must(emulator.New(engine.Engine, nil)).Start(address)
	exitOn(err)
	fmt.Println("serving", endpoint.Addr())
	<-endpoint.Done()
}

// runWorker prints the text of every message. It never polls: it dequeues when it begins to listen and when it
// hears an event, until the queue is empty.
func runWorker(location string) {
	q, err := azurequeue.Open(location, "jobs", nil)
	exitOn(err)
	source, err := serverwakeup.Open(location, nil)
	exitOn(err)
	signal := make(chan struct{}, 1)
	wake := func() { waiting.Signal(signal, struct{}{}) }
	_, err = source.Subscribe(q.Name(), func(queue.Name, int64, time.Time) { wake() }, func(listening bool) {
		if listening {
			fmt.Println("listening", os.Getpid())
			wake()
		}
	})
	exitOn(err)
	ctx := context.Background()
	for range signal {
		for {
			found, err := q.Dequeue(ctx, 4, 2*time.Second)
			if err != nil || len(found) == 0 {
				break
			}
			for _, m := range found {
				fmt.Println("job", m.Text)
				_ = q.Delete(ctx, m.Lease) // else it comes again
			}
		}
	}
}

// freeAddress returns an address on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func openJobs(t *testing.T, location string) *azurequeue.Queue {
	t.Helper()
	q, err := azurequeue.Open(location, "jobs", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q
}

// TestTwoProcessesWakeEachOther shows that a message costs two idle worker processes two dequeues in all, and
// that both work.
func TestTwoProcessesWakeEachOther(t *testing.T) {
	server := must(emulator.New(nil, nil))
	endpoint, err := server.Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer endpoint.Close()
	q := openJobs(t, endpoint.ConnectionString())
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	output := make(chan string, 100)
	for range 2 {
		w := killtest.Start(t, output, workerVariable+"="+endpoint.ConnectionString())
		defer w.Kill(t)
	}
	dequeues := func() int64 { return server.Counts().EmptyGets }
	for range 2 {
		<-output // listening
	}
	azuritetest.Until(t, "both have dequeued", func() bool { return dequeues() >= 2 })
	slow := false // another worker is woken if one does not dequeue in time
	for range 20 {
		before, begun := dequeues(), time.Now()
		if _, err := q.Enqueue(t.Context(), "x", nil); err != nil {
			t.Fatal(err)
		}
		if got := <-output; got != "job x" {
			t.Fatalf("got %q, want the job", got)
		}
		azuritetest.Until(t, "the worker is idle again", func() bool { return dequeues() > before })
		slow = slow || time.Since(begun) > 400*time.Millisecond
	}
	c := server.Counts()
	if got := c.Operations[emulator.GetMessages]; got != 2+2*20 && !slow {
		t.Errorf("got %d dequeues for 20 messages, want 2 for each and 2 at the start:\n%v", got, c)
	}
}

// TestKilledServersAndWorkersStrandNothing kills server and workers under load. Though no worker polls, every
// job is handled.
func TestKilledServersAndWorkersStrandNothing(t *testing.T) {
	const jobs, workers = 240, 3
	address, directory := freeAddress(t), t.TempDir()
	output := make(chan string, 100_000)
	serve := func() *killtest.Process {
		return killtest.Start(t, output, serverVariable+"="+address, dataVariable+"="+directory)
	}
	location := "AccountName=" + emulator.DevelopmentAccount + ";AccountKey=" + emulator.DevelopmentKey +
		";QueueEndpoint=http://" + address + "/" + emulator.DevelopmentAccount
	server := serve()
	defer func() { server.Kill(t) }()
	q := openJobs(t, location)
	azuritetest.Until(t, "the server serves", func() bool { return q.Create(t.Context(), nil) == nil })
	start := func() *killtest.Process { return killtest.Start(t, output, workerVariable+"="+location) }
	var pool []*killtest.Process
	for range workers {
		pool = append(pool, start())
	}
	for n := range jobs {
		switch n % 80 {
		case 40:
			server.Kill(t)
			server = serve()
		case 60:
			pool[0].Kill(t)
			pool = append(pool[1:], start())
		}
		azuritetest.Until(t, "a job is sent", func() bool {
			_, err := q.Enqueue(t.Context(), fmt.Sprint(n), nil)
			if err != nil && !errors.Is(err, queue.ErrUnavailable) && !errors.Is(err, queue.ErrOutcomeUnknown) {
				t.Fatal(err)
			}
			return err == nil // one of unknown outcome may be there twice
		})
	}
	azuritetest.Until(t, "the queue is empty", func() bool {
		p, err := q.Properties(t.Context())
		return err == nil && p.Depth == 0
	})
	for _, w := range pool {
		w.Kill(t)
	}
	server.Kill(t)
	server = serve() // to be killed in the end
	handled := map[string]bool{}
	for len(output) > 0 {
		if job, ok := strings.CutPrefix(<-output, "job "); ok {
			handled[job] = true
		}
	}
	if len(handled) != jobs {
		t.Errorf("%d jobs were handled, want %d", len(handled), jobs)
	}
}
