// Package account is the storage account of a program: its queues, wake-ups and blobs, on a server in this
// process, on this machine or elsewhere.
package account

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/wakeup/serverwakeup"
)

// Embedded is the location of an account in this process.
const Embedded = "embedded"

// Account is the storage account with the queues. The same HTTP client reaches an embedded one and a
// remote one. It is safe for concurrent use.
type Account struct {
	location string
	at       azurestorage.Location
	endpoint *emulator.Endpoint // nil unless embedded
	client   *http.Client
	wakeups  *serverwakeup.Source
	requests atomic.Int64 // every request is one transaction on the bill
	outage   outage
}

// Open starts the emulator if the account is embedded, and refuses an invalid location. It sends no
// request.
func Open(location string, logger *slog.Logger) (*Account, error) {
	a := &Account{location: location, outage: outage{server: "queue server", logger: logger}}
	if location == Embedded {
		server, err := emulator.New(nil, nil)
		if err != nil {
			return nil, err
		}
		endpoint, err := server.Start("")
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
	if _, err := a.Queue(probe); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	var err error
	if a.at, err = azurestorage.Queue.Parse(a.location); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	// Its requests are not counted as transactions, so they bypass Do.
	if a.wakeups, err = serverwakeup.Open(a.location, &serverwakeup.Options{Transport: a.client, Logger: logger}); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// probe is a queue name for checking a location.
const probe = "probe"

// Do sends a request, counts it, and notes whether the server answers. One in this process always does, however late on a
// busy machine.
func (a *Account) Do(r *http.Request) (*http.Response, error) {
	a.requests.Add(1)
	response, err := a.client.Do(r)
	if a.endpoint == nil {
		a.outage.note(r.Context(), response, err)
	}
	return response, err
}

// Requests returns how many requests were sent through [Account.Do], as the queues do.
func (a *Account) Requests() int64 { return a.requests.Load() }

// Location returns the location, which may contain a key. An embedded account has a location, too.
func (a *Account) Location() string { return a.location }

// Endpoint returns the address of the queues, without any secret.
func (a *Account) Endpoint() string { return a.at.Endpoint }

// Embedded reports whether the account is in this process.
func (a *Account) Embedded() bool { return a.endpoint != nil }

// Wakeups is the source of wake-ups. A server without wake-ups is polled.
func (a *Account) Wakeups() *serverwakeup.Source { return a.wakeups }

// Queue opens one queue. An invalid location is a usage error.
func (a *Account) Queue(name string) (queue.Queue, error) {
	q, err := azurequeue.Open(a.location, name, &azurequeue.Options{Transport: a})
	if errors.Is(err, queue.ErrInvalid) {
		known := (*queue.Error)(nil)
		errors.As(err, &known)
		return nil, cli.UsageErrorf("-account: %s; %s", known.Detail, known.Hint)
	}
	return q, err
}

// Queues returns all queues of the account.
func (a *Account) Queues() (queue.Account, error) {
	return azurequeue.OpenAccount(a.location, &azurequeue.Options{Transport: a})
}

// Patience is how long the first requests are retried. For a login, getting a token takes time too.
func (a *Account) Patience() time.Duration {
	if strings.HasPrefix(strings.ToLower(strings.TrimSpace(a.location)), "https:") {
		return 30 * time.Second
	}
	return 3 * time.Second
}

// Idle is how long listeners wait between polls of an empty queue. In this process a poll costs
// nothing, and a user waits.
func (a *Account) Idle() listener.Idle {
	if a.endpoint != nil {
		return listener.Idle{Min: 20 * time.Millisecond, Max: 250 * time.Millisecond}
	}
	return listener.Idle{}
}

// Server returns the name that the queue server gives itself, such as "Azurite-Queue/3.35.0". If it
// does not answer, the error gives advice.
func (a *Account) Server(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, a.Patience())
	defer cancel()
	for {
		// Not signed: a refusal names the server too.
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, a.at.Endpoint+"?comp=list", nil)
		if err != nil {
			return "", err
		}
		response, err := a.client.Do(r)
		if err == nil {
			return response.Header.Get("Server"), response.Body.Close()
		}
		select {
		case <-time.After(100 * time.Millisecond): // it may be starting
		case <-ctx.Done():
			return "", a.unanswered(err)
		}
	}
}

// Explain adds advice to the error of the first requests, if no server answered them.
func (a *Account) Explain(err error) error {
	if known := (*queue.Error)(nil); errors.As(err, &known) && errors.Is(err, queue.ErrUnavailable) && known.Status == 0 {
		return a.unanswered(err)
	}
	return err
}

// unanswered is the error for a queue server that does not answer.
func (a *Account) unanswered(err error) error {
	u, parseErr := url.Parse(a.at.Endpoint)
	if parseErr != nil {
		return err
	}
	reason := err
	if network := (*net.OpError)(nil); errors.As(err, &network) {
		reason = network.Err
	}
	if a.at.Hint == "" { // on another machine
		return fmt.Errorf("no queue server answers at %s: %w", u.Host, reason)
	}
	return fmt.Errorf("no queue server answers at %s: %w; start one in another terminal with millrace serve, or name an account with -account or %s", u.Host, reason, Variable)
}

// Close closes the connections and stops the emulator.
func (a *Account) Close() error {
	if a.wakeups != nil {
		_ = a.wakeups.Close() // its error is always nil
	}
	a.client.CloseIdleConnections()
	if a.endpoint == nil {
		return nil
	}
	return a.endpoint.Close()
}
