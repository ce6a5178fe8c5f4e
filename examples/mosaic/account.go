package main

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/scaling"
)

// embedded is the location of an account in this process.
const embedded = "embedded"

// account is where the queues are. It is reached over HTTP by the same client
// wherever it is.
type account struct {
	location string
	endpoint *emulator.Endpoint // nil unless embedded
	client   *http.Client
	requests atomic.Int64 // every request is one transaction on the bill
}

// openAccount starts the emulator if the account is embedded, and refuses a location
// that is none. It sends nothing.
func openAccount(location string) (*account, error) {
	a := &account{location: location}
	if location == embedded {
		endpoint, err := emulator.New(nil, nil).Start("")
		if err != nil {
			return nil, err
		}
		a.endpoint, a.location = endpoint, endpoint.ConnectionString()
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64 // more than there are calls at once
	a.client = &http.Client{
		Transport: transport,
		// The service never redirects, and following would be a second request.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if _, err := a.queue(probe); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

// probe is a name to try a location with.
const probe = "probe"

// Do sends a request and counts it.
func (a *account) Do(r *http.Request) (*http.Response, error) {
	a.requests.Add(1)
	return a.client.Do(r)
}

// queue opens one queue. A location that is none is a wrong call.
func (a *account) queue(name string) (queue.Queue, error) {
	q, err := azurequeue.Open(a.location, name, &azurequeue.Options{Transport: a})
	if errors.Is(err, queue.ErrInvalid) {
		known := (*queue.Error)(nil)
		errors.As(err, &known)
		return nil, wrongCall("-account: %s; %s", known.Detail, known.Hint)
	}
	return q, err
}

// patience is how long the first requests are repeated. A login may ask programs and
// services for a token before anything is sent.
func (a *account) patience() time.Duration {
	if strings.HasPrefix(strings.ToLower(strings.TrimSpace(a.location)), "https:") {
		return 30 * time.Second
	}
	return 3 * time.Second
}

// idle is how long listeners wait when there is nothing to do. In this process a poll
// costs nothing, and somebody waits for the picture.
func (a *account) idle() scaling.Idle {
	if a.endpoint != nil {
		return scaling.Idle{Min: 20 * time.Millisecond, Max: 250 * time.Millisecond}
	}
	return scaling.Idle{}
}

// close ends the connections and the emulator.
func (a *account) close() error {
	a.client.CloseIdleConnections()
	if a.endpoint == nil {
		return nil
	}
	return a.endpoint.Close()
}
