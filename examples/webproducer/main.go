// Webproducer is an HTTP server that sends a job for each request, with an optional delay:
//
//	go run ./examples/webproducer
//	curl -i -d '{"To":"bob","Text":"hi"}' 'localhost:8080/letters?delay=10s'
//
// The queue is in memory, or in the account that AZURE_STORAGE names; Ctrl-C ends the program. A
// letter that is too large for a message (about 64 KiB) is refused with 413: store large data
// elsewhere and send a reference.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/localqueue"
)

type Letter struct{ To, Text string }

func main() {
	addr := flag.String("addr", "localhost:8080", "address to listen on")
	flag.Parse()
	engine, err := localqueue.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	var q queue.Queue = engine.Queue(queue.Name{Queue: "letters"})
	if location := os.Getenv("AZURE_STORAGE"); location != "" {
		var err error
		if q, err = azurequeue.Open(location, "letters", nil); err != nil {
			log.Fatal(err)
		}
	}
	if err := run(context.Background(), q, &http.Server{Addr: *addr, ReadHeaderTimeout: 10 * time.Second}); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, q queue.Queue, server *http.Server) error {
	// The time-out bounds how long a request waits for the service.
	letters := producer.New(q, &producer.Options[Letter]{Create: true, Timeout: 5 * time.Second})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /letters", send(letters))
	server.Handler = mux
	deliver := listener.New(q, func(_ context.Context, m *listener.Message[Letter]) error {
		log.Printf("delivering a letter of %d bytes to %s", len(m.Body.Text), m.Body.To)
		return nil
	}, &listener.Options[Letter]{Create: true})
	// The server stops first, so that the listener can still handle the accepted letters.
	return millrace.RunOrdered(ctx, deliver, millrace.HTTP(server, nil))
}

// send returns a handler that sends the posted letter. It responds when the service has accepted
// the job.
func send(letters *producer.Producer[Letter]) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var letter Letter
		var o producer.SendOptions
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&letter)
		if delay := r.URL.Query().Get("delay"); err == nil && delay != "" {
			o.Delay, err = time.ParseDuration(delay)
		}
		var sent producer.Sent
		badRequest := err != nil
		if err == nil {
			sent, err = letters.Send(r.Context(), letter, &o)
		}
		switch {
		case err == nil:
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprintln(w, "accepted as", sent.ID)
		case errors.Is(err, queue.ErrTooLarge), errors.As(err, new(*http.MaxBytesError)):
			http.Error(w, "the letter is too large", http.StatusRequestEntityTooLarge)
		case badRequest, errors.Is(err, queue.ErrInvalid): // such as a delay of more than seven days
			http.Error(w, err.Error(), http.StatusBadRequest)
		default: // an outage, or a lost response: a repeated letter may be delivered twice
			log.Print(err)
			http.Error(w, "try again", http.StatusServiceUnavailable)
		}
	}
}
