package serverwakeup

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
	"github.com/millrace/millrace/wakeup"
)

// ErrClosed means that the source was closed.
var ErrClosed = errors.New("the source of wake-ups is closed")

// Options configure [Open]. Nil and the zero value mean the defaults.
type Options struct {
	// Credential authorizes requests if the location is an https address without a signature. It is
	// refused with a location that has a key or a signature. Defaults to azidentity's
	// DefaultAzureCredential.
	Credential azcore.TokenCredential

	// Transport sends the requests: an [*http.Client] without a Timeout, or an in-process transport. It
	// must return a response before its body has ended. A client without CheckRedirect follows no
	// redirects here. Close does not close it. Defaults to an HTTP client of its own.
	Transport policy.Transporter

	// Logger gets a record when a server does not offer wake-ups, when a stream breaks, and when it
	// works again. Defaults to slog.Default().
	Logger *slog.Logger
}

// Source is a [wakeup.Source] for the queues of one account of an embedded server. It is safe for
// concurrent use. Make one with [Open]; Close must be called.
type Source struct {
	at         azurestorage.Location
	credential azcore.TokenCredential // for TokenAuth
	transport  policy.Transporter
	idle       func() // closes idle connections of an own transport
	log        *slog.Logger
	key        string // random, spreads the waits of the processes: those in containers may have the same number

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup // the goroutines of the streams

	mu      sync.Mutex
	closed  bool                   // guarded by mu
	streams map[queue.Name]*stream // guarded by mu; those with subscribers
}

var _ wakeup.Source = (*Source)(nil)

// Open returns the source at the location of an account or a queue, as azurequeue's Open accepts it. It
// sends no request. The error is [queue.ErrInvalid]; it does not repeat the location.
func Open(location string, o *Options) (*Source, error) {
	if o == nil {
		o = new(Options)
	}
	at, err := azurestorage.Queue.Parse(location)
	var wrong *azurestorage.ParseError
	switch {
	case errors.As(err, &wrong):
		err = &queue.Error{Kind: queue.ErrInvalid, Detail: wrong.Detail, Hint: wrong.Hint}
	case err == nil && o.Credential != nil && at.Auth != azurestorage.TokenAuth:
		err = &queue.Error{Kind: queue.ErrInvalid, Detail: fmt.Sprintf("both a Credential and a %s in the location", at.Auth), Hint: "leave one of them out"}
	}
	if err != nil {
		return nil, driver.Explain(err, opOpen, queue.Name{Account: at.Account, Queue: at.Resource}, "")
	}
	s := &Source{at: at, credential: o.Credential, transport: o.Transport, idle: func() {}, log: o.Logger,
		key: rand.Text(), streams: make(map[queue.Name]*stream)}
	if at.Auth == azurestorage.TokenAuth && s.credential == nil {
		if s.credential, err = azidentity.NewDefaultAzureCredential(nil); err != nil {
			err = &queue.Error{Kind: queue.ErrUnauthorized, Err: at.RedactError(err), Hint: azurestorage.LoginHint}
			return nil, driver.Explain(err, opOpen, queue.Name{Account: at.Account, Queue: at.Resource}, "")
		}
	}
	if s.transport == nil {
		const connections = 8 // for requests beside the streams
		own := azurestorage.NewClient(connections)
		s.transport, s.idle = own, own.CloseIdleConnections
	}
	s.transport = azurestorage.WithoutRedirects(s.transport)
	s.log = cmp.Or(s.log, slog.Default())
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

const (
	opOpen      = "open wake-ups"
	opSubscribe = "subscribe to wake-ups"
)

// Subscribe registers a subscriber. It fails if the location has no such queue, and after Close with
// [ErrClosed].
func (s *Source) Subscribe(q queue.Name, event func(q queue.Name, bytes int64, due time.Time), listening func(bool)) (wakeup.Subscription, error) {
	err := driver.CheckName(q.Queue)
	if err == nil && (q.Account != s.at.Account || s.at.Resource != "" && s.at.Resource != q.Queue) {
		err = &queue.Error{Kind: queue.ErrInvalid, Detail: "the queue is not at the location of the wake-ups", Hint: "give New the location of the queue"}
	}
	if err != nil {
		return nil, driver.Explain(err, opSubscribe, q, "")
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, driver.Explain(&queue.Error{Kind: queue.ErrUnavailable, Err: ErrClosed}, opSubscribe, q, "")
	}
	st := s.streams[q]
	if st == nil {
		st = newStream(s, q)
		s.streams[q] = st
		s.running.Go(st.run)
	}
	sub := &subscription{stream: st, onEvent: event, onListening: listening}
	st.add(sub)
	s.mu.Unlock()
	sub.Ready(true)
	return sub, nil
}

// EmptyAfter returns 1, as [wakeup.Source] describes it: only the embedded server has streams,
// and it returns all messages that are visible.
func (s *Source) EmptyAfter() int { return 1 }

// Linger returns 0, as [wakeup.Source] describes it: requests to the embedded server are free, so a
// job need not wait for others.
func (s *Source) Linger() time.Duration { return 0 }

// release removes a subscriber, and ends its stream if that has no other.
func (s *Source) release(sub *subscription) {
	st := sub.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	st.mu.Lock()
	delete(st.subscribers, sub)
	empty := len(st.subscribers) == 0
	st.mu.Unlock()
	if empty && s.streams[st.name] == st {
		delete(s.streams, st.name)
		st.cancel()
	}
}

// Close ends all streams and waits until nothing of the source runs. No function of a subscriber is called
// after it has returned. A second Close does nothing. The error is always nil.
func (s *Source) Close() error {
	s.mu.Lock()
	s.closed = true
	all := make([]*stream, 0, len(s.streams))
	for _, st := range s.streams {
		all = append(all, st)
	}
	s.mu.Unlock()
	for _, st := range all {
		for _, sub := range st.members() {
			_ = sub.Close() // it never fails
		}
	}
	s.cancel()
	s.running.Wait()
	s.idle()
	return nil
}

// subscription is one subscriber of a stream. Its lock is taken before that of the stream.
type subscription struct {
	stream      *stream
	onEvent     func(q queue.Name, bytes int64, due time.Time)
	onListening func(bool)

	mu        sync.Mutex // held while the subscriber is called, so that no call overlaps or comes late
	ready     bool       // guarded by mu
	listening bool       // listening(true) was called since it was ready; guarded by mu
	closed    bool       // guarded by mu
}

func (s *subscription) Ready(ready bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setReady(ready)
}

// setReady requires mu.
func (s *subscription) setReady(ready bool) {
	if s.closed || s.ready == ready {
		return
	}
	s.ready = ready
	if !ready {
		s.listening = false
		s.stream.count(-1)
		return
	}
	s.stream.count(1)
	s.listen()
}

// listen tells a ready subscriber that the stream is in force, if it is and that was not said yet. It
// requires mu: the stream may break at any time, and what follows from that is said after this.
func (s *subscription) listen() {
	s.stream.mu.Lock()
	inForce := s.stream.inForce
	s.stream.mu.Unlock()
	if s.ready && !s.listening && inForce {
		s.listening = true
		s.onListening(true)
	}
}

// More does nothing: the server has seen the dequeue and wakes the next one if messages are left.
func (s *subscription) More() {}

func (s *subscription) Close() error {
	s.mu.Lock()
	s.setReady(false)
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if first {
		s.stream.source.release(s)
	}
	return nil
}

func (s *subscription) began() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listen()
}

// broke says that the stream is not in force any more.
func (s *subscription) broke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listening {
		s.listening = false
		s.onListening(false)
	}
}

// event passes an event to a subscriber that listens.
func (s *subscription) event(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listening {
		s.onEvent(s.stream.name, bytes, time.Time{})
	}
}

const (
	// protocolVersion is one that every emulator serves.
	protocolVersion = "2020-10-02"

	// tryTimeout is how long a request may take, and a stream until its first line.
	tryTimeout = 10 * time.Second
)

var (
	errSilent  = errors.New("the wake-up stream is silent")
	errHeld    = errors.New("the response has begun, but the stream does not arrive: a proxy may hold it back")
	errForeign = errors.New("the response is not a wake-up stream")
)

// refusal is a response that refuses a request.
type refusal struct {
	status int
	code   string // of the service, or ""
}

func (r *refusal) Error() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s %s", r.status, http.StatusText(r.status), r.code))
}

// connection is an open stream.
type connection struct {
	hello  hello
	body   io.ReadCloser
	lines  *bufio.Reader
	silent *time.Timer // ends the stream when it fires
	ctx    context.Context
}

// connect opens a stream and reads its first line within a time. The caller closes it. cancel ends ctx, which
// the stream needs until then.
func (s *Source) connect(ctx context.Context, cancel context.CancelCauseFunc, q queue.Name, within time.Duration) (_ *connection, err error) {
	slow := time.AfterFunc(within, func() { cancel(azurestorage.ErrTryTimeout) })
	defer slow.Stop()
	response, err := s.send(ctx, http.MethodGet, q, "") //nolint:bodyclose // the connection closes it
	if err != nil {
		return nil, err
	}
	c := &connection{body: response.Body, lines: bufio.NewReaderSize(response.Body, maxLine), ctx: ctx}
	if kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); response.StatusCode != http.StatusOK || kind != "text/plain" {
		c.close()
		return nil, errForeign
	}
	line, err := c.line()
	switch {
	case err == nil:
		c.hello, err = parseHello(line)
	case errors.Is(err, io.EOF): // the response is complete; one that was cut is io.ErrUnexpectedEOF
		err = errNoHello
	}
	if err == nil && !slow.Stop() {
		err = azurestorage.ErrTryTimeout
	}
	if err != nil {
		c.close()
		if errors.Is(context.Cause(ctx), azurestorage.ErrTryTimeout) {
			err = errHeld
		}
		return nil, err
	}
	c.silent = time.AfterFunc(c.patience(), func() { cancel(errSilent) })
	return c, nil
}

// patience is how long the stream may be silent.
func (c *connection) patience() time.Duration { return 2*c.hello.alive + tryTimeout }

// read returns the next line.
func (c *connection) read() (string, error) {
	line, err := c.line()
	if err == nil {
		c.silent.Reset(c.patience())
	}
	return line, err
}

// line returns the next line that is complete.
func (c *connection) line() (string, error) {
	line, err := c.lines.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return "", errForeign
	case c.ctx.Err() != nil:
		return "", context.Cause(c.ctx)
	case err != nil:
		return "", err
	}
	return strings.TrimRight(string(line), "\r\n"), nil
}

func (c *connection) close() {
	if c.silent != nil {
		c.silent.Stop()
	}
	_ = c.body.Close() // nothing is left to be read
}

// setReady tells the server whether a stream is ready.
func (s *Source) setReady(ctx context.Context, q queue.Name, id string, ready bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, tryTimeout, azurestorage.ErrTryTimeout)
	defer cancel()
	response, err := s.send(ctx, http.MethodPut, q, fmt.Sprintf("&stream=%s&ready=%t", id, ready))
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }() // it is empty
	if response.StatusCode != http.StatusNoContent {
		return errForeign
	}
	return nil
}

// send sends a request. A response that refuses it is a [*refusal]; the caller closes the body of others.
func (s *Source) send(ctx context.Context, method string, q queue.Name, more string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.at.Endpoint+q.Queue+"?comp=wakeups"+more, nil)
	if err != nil {
		return nil, s.at.RedactError(err)
	}
	r.Header.Set("x-ms-version", protocolVersion)
	r.Header.Set("Accept-Encoding", "identity") // a proxy that compresses would hold lines back
	if err := s.authorize(ctx, r); err != nil {
		return nil, err
	}
	response, err := s.transport.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, s.at.RedactError(err)
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		const enough = 4 << 10
		_, _ = io.CopyN(io.Discard, response.Body, enough) // so that the connection can be used again
		_ = response.Body.Close()
		return nil, &refusal{response.StatusCode, s.at.Redact(response.Header.Get("x-ms-error-code"))}
	}
	return response, nil
}

func (s *Source) authorize(ctx context.Context, r *http.Request) error {
	if s.at.Auth != azurestorage.TokenAuth {
		s.at.Sign(r)
		return nil
	}
	token, err := s.credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{"https://storage.azure.com/.default"}})
	if err != nil {
		return fmt.Errorf("no token, nothing was sent: %w", s.at.RedactError(err))
	}
	r.Header.Set("Authorization", "Bearer "+token.Token)
	return nil
}
