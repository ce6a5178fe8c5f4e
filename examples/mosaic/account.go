package main

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/wakeup/serverwakeup"
)

// embedded is the location of an account in this process.
const embedded = "embedded"

// account is the storage account with the queues. The same HTTP client reaches an embedded one and a
// remote one.
type account struct {
	location string
	endpoint *emulator.Endpoint // nil unless embedded
	client   *http.Client
	wakeups  *serverwakeup.Source
	requests atomic.Int64 // every request is one transaction on the bill
}

// openAccount starts the emulator if the account is embedded, and refuses an invalid location. It
// sends no request.
func openAccount(location string, logger *slog.Logger) (*account, error) {
	a := &account{location: location}
	if location == embedded {
		endpoint, err := emulator.New(nil, nil).Start("")
		if err != nil {
			return nil, err
		}
		a.endpoint, a.location = endpoint, endpoint.ConnectionString()
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64 // more than there are concurrent calls
	a.client = &http.Client{
		Transport: transport,
		// The service never redirects, and following would be a second request.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if _, err := a.queue(probe); err != nil {
		return nil, errors.Join(err, a.close())
	}
	var err error
	// Its requests are no transactions, and so do not pass through Do.
	if a.wakeups, err = serverwakeup.New(a.location, &serverwakeup.Options{Transport: a.client, Logger: logger}); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

// probe is a queue name for checking a location.
const probe = "probe"

// Do sends a request and counts it.
func (a *account) Do(r *http.Request) (*http.Response, error) {
	a.requests.Add(1)
	return a.client.Do(r)
}

// queue opens one queue. An invalid location is a usage error.
func (a *account) queue(name string) (queue.Queue, error) {
	q, err := azurequeue.Open(a.location, name, &azurequeue.Options{Transport: a})
	if errors.Is(err, queue.ErrInvalid) {
		known := (*queue.Error)(nil)
		errors.As(err, &known)
		return nil, usageErrorf("-account: %s; %s", known.Detail, known.Hint)
	}
	return q, err
}

// patience is how long the first requests are retried. For a login, getting a token takes time too.
func (a *account) patience() time.Duration {
	if strings.HasPrefix(strings.ToLower(strings.TrimSpace(a.location)), "https:") {
		return 30 * time.Second
	}
	return 3 * time.Second
}

// idle is how long listeners wait between polls of an empty queue. In this process a poll costs
// nothing, and a user waits for the mosaic.
func (a *account) idle() scaling.Idle {
	if a.endpoint != nil {
		return scaling.Idle{Min: 20 * time.Millisecond, Max: 250 * time.Millisecond}
	}
	return scaling.Idle{}
}

// close closes the connections and stops the emulator.
func (a *account) close() error {
	if a.wakeups != nil {
		_ = a.wakeups.Close() // its error is always nil
	}
	a.client.CloseIdleConnections()
	if a.endpoint == nil {
		return nil
	}
	return a.endpoint.Close()
}
