// Kubernetes is a worker for Kubernetes with two queues, probes, metrics, and a graceful shutdown
// within the termination grace period of its pod. See deployment.yaml.
//
//	go run ./examples/kubernetes
//	curl localhost:8080/readyz localhost:8080/metrics
//
// The queues are in memory, or in the account that AZURE_STORAGE names. SIGTERM and Ctrl-C end
// it: the listeners drain, and the server responds until they have, and for 5 s at least.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/localqueue"
)

// A pod is killed 30 s after its SIGTERM. Handlers get 20 s of that, settlements 5 s, and the rest
// is for the server.
const grace, settle = 20 * time.Second, 5 * time.Second

// preStop is how long after its SIGTERM a pod may still get requests, because its removal from the
// service takes a while. It begins with the drain and does not prolong that.
const preStop = 5 * time.Second

type Order struct{ ID string }

type Email struct{ To string }

func main() {
	addr := flag.String("addr", ":8080", "address of probes and metrics")
	flag.Parse()
	engine, err := localqueue.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	account := engine.Account("local")
	if location := os.Getenv("AZURE_STORAGE"); location != "" {
		var err error
		if account, err = azurequeue.OpenAccount(location, nil); err != nil {
			log.Fatal(err)
		}
	}
	server := &http.Server{Addr: *addr, ReadHeaderTimeout: 10 * time.Second}
	if err := run(context.Background(), account, server, preStop, ship, write); err != nil {
		log.Fatal(err)
	}
}

// run handles the jobs of both queues until ctx ends or a signal comes.
func run(ctx context.Context, account queue.Account, server *http.Server, preStop time.Duration,
	ship listener.Handler[Order], write listener.Handler[Email]) error {
	orders, err1 := account.Open("orders")
	emails, err2 := account.Open("emails")
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	shipping := listener.New(orders, ship, &listener.Options[Order]{Create: true, Grace: grace, Lease: listener.LeaseOptions{SettleTimeout: settle}})
	writing := listener.New(emails, write, &listener.Options[Email]{Create: true, Grace: grace, Lease: listener.LeaseOptions{SettleTimeout: settle}})
	server.Handler = probes(map[string]func() listener.State{"orders": shipping.State, "emails": writing.State})
	probing := millrace.HTTP(server, &millrace.HTTPOptions{PreStop: preStop})
	return millrace.RunOrdered(ctx, probing, millrace.Together(shipping, writing)) // stops the last one first
}

// probes serves the probes of Kubernetes, and metrics in the text format of Prometheus.
func probes(states map[string]func() listener.State) http.Handler {
	all := func(ok func(listener.State) bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for name, state := range states {
				if s := state(); !ok(s) {
					http.Error(w, name+": "+strings.Join(s.Reasons(), "; "), http.StatusServiceUnavailable)
					return
				}
			}
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", all(listener.State.Healthy))
	mux.Handle("GET /readyz", all(listener.State.Ready))
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		for _, m := range metrics {
			fmt.Fprintf(w, "# HELP %s %s\n# TYPE %[1]s %[3]s\n", m.name, m.help, m.kind)
			for _, name := range slices.Sorted(maps.Keys(states)) {
				fmt.Fprintf(w, "%s{queue=%q} %d\n", m.name, name, m.value(states[name]()))
			}
		}
	})
	return mux
}

var metrics = []struct {
	name, kind, help string
	value            func(listener.State) int64
}{
	{"jobs_running", "gauge", "Handlers that are running.", func(s listener.State) int64 { return int64(s.Running) }},
	{"jobs_succeeded_total", "counter", "Jobs whose handler succeeded.", func(s listener.State) int64 { return s.Outcomes[listener.Deleted] }},
	{"jobs_retried_total", "counter", "Failed attempts that are retried.", func(s listener.State) int64 { return s.Outcomes[listener.Retried] }},
	{"jobs_poisoned_total", "counter", "Jobs that moved to the poison queue.", func(s listener.State) int64 { return s.Outcomes[listener.Poisoned] }},
	{"queue_depth", "gauge", "Messages in the queue, as last read.", func(s listener.State) int64 { return s.Depth }},
	{"queue_requests_total", "counter", "Requests that were sent to the queues.", func(s listener.State) int64 { return s.Requests }},
	{"queue_paused", "gauge", "1 if the queue or the program pauses the worker.", func(s listener.State) int64 { return number(s.PausedBy != listener.NotPaused) }},
}

func number(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

func ship(context.Context, *listener.Message[Order]) error { return nil }

func write(context.Context, *listener.Message[Email]) error { return nil }
