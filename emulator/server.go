package emulator

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/queuexml"
	"github.com/millrace/millrace/queue/localqueue"
)

// The development account, the same as in Azurite and every Azure storage
// client. Its key is public knowledge and protects nothing.
const (
	DevelopmentAccount = "devstoreaccount1"
	DevelopmentKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// Options configure a [Server]. Nil and the zero value mean the defaults.
type Options struct {
	// Accounts are additional accounts by name, with their keys decoded from Base64. The
	// development account exists too, with its public key unless it is named here; but see
	// Public. Defaults to none.
	Accounts map[string][]byte

	// Public allows endpoints that other machines can reach. The development account then exists
	// only if Accounts names it, because its key is public. Bearer tokens are refused, because
	// their signatures cannot be checked. Keys and signatures are the only protection, so use
	// TLS. New refuses the development account's key under any name, and keys of fewer than 16
	// bytes. Defaults to false: loopback addresses only.
	Public bool

	// Hosts are additional names or addresses, without ports, that endpoints accept as the Host
	// of requests. They always accept loopback addresses, localhost and names below it, and
	// refuse others, so that no web page can reach them under a name of its own that resolves to
	// this machine. With a name over plain HTTP, browsers do not mark a page's requests for
	// images and the like, as they do for loopback addresses and over TLS: see docs/protocol.md.
	// A public endpoint accepts every host if Hosts is empty, and otherwise these and the names
	// of this machine. Defaults to none.
	Hosts []string

	// Delay makes every request take this much longer, half of it before the operation and half
	// after it, like network latency. A request that the client abandons in the first half is not
	// executed; in the second half it has been. Defaults to 0.
	Delay time.Duration

	// Front handles what a browser requests from an [Endpoint] that it was pointed at: GET and
	// HEAD of "/" and "/favicon.ico" without a query, an Authorization, or an account in the
	// host. These requests are not counted and not authorized: Front decides who sees what.
	// Defaults to nil: the protocol handles them, with InvalidUri or an unknown account.
	Front http.Handler

	// Faults are the faults to inject. New refuses invalid rules; those of ParseFaults are
	// valid. SetFaults replaces them. Defaults to none.
	Faults *Faults

	// Quotas are the rates above which requests are refused. Defaults to none.
	Quotas Quotas

	// Log gets a record of every request with operation, account, queue, status, code and
	// duration, at level Info, or Warn if it had a fault. It contains no key, signature, token,
	// receipt, metadata or text. Defaults to nil: no log.
	Log *slog.Logger
}

func wellKnownKey() []byte {
	key, err := base64.StdEncoding.DecodeString(DevelopmentKey)
	if err != nil {
		panic(err) // it is a constant
	}
	return key
}

func (o *Options) accounts() map[string]*accountState {
	all := make(map[string]*accountState)
	if !o.Public {
		all[DevelopmentAccount] = newAccount(wellKnownKey())
	}
	for name, key := range o.Accounts {
		all[name] = newAccount(key)
	}
	if o.Quotas.Requests > 0 {
		for _, a := range all {
			a.requests = newTokenBucket(o.Quotas.Requests)
		}
	}
	return all
}

// Server implements the Queue service's protocol as an [http.Handler] and an [http.RoundTripper].
// It is safe for concurrent use and needs no closing; an [Endpoint] does. Create one with [New].
type Server struct {
	engine         *localqueue.Engine
	accounts       map[string]*accountState // never changes
	public         bool                     // other machines may reach it
	hosts          []string                 // Options.Hosts
	delay          time.Duration
	front          http.Handler               // or nil
	faults         atomic.Pointer[faultRules] // nil for none
	messages       *queueBuckets              // nil without a quota
	log            *slog.Logger               // nil for none
	counters       *counters
	streams        streams
	memory         int64                      // budget of each endpoint, in bytes
	peeks          chan struct{}              // holds an element for each peek that reads texts
	idPrefix       [8]byte                    // random first half of request ids
	requests       atomic.Uint64              // counter, second half of request ids
	lastParsedDate atomic.Pointer[parsedDate] // last date of a client
	lastDateHeader atomic.Pointer[dateHeader] // last Date header sent
}

// New returns a server over the engine. A nil engine means a new in-memory one with its defaults.
// The error says which option is invalid.
func New(engine *localqueue.Engine, o *Options) (*Server, error) {
	if engine == nil {
		var err error
		if engine, err = localqueue.New(nil); err != nil {
			return nil, err
		}
	}
	if o == nil {
		o = new(Options)
	}
	s := &Server{engine: engine, accounts: o.accounts(), public: o.Public, hosts: slices.Clone(o.Hosts), delay: max(o.Delay, 0), front: o.Front, log: o.Log,
		counters: newCounters(), memory: localBudget, peeks: make(chan struct{}, maxPeeks)}
	if s.public {
		s.memory = publicBudget
	}
	rules, err := newFaultRules("Options.Faults", o.Faults)
	if err := cmp.Or(o.Quotas.check(), err, s.checkAccess()); err != nil {
		return nil, err
	}
	s.faults.Store(rules)
	if o.Quotas.Messages > 0 {
		s.messages = newQueueBuckets(o.Quotas.Messages)
	}
	rand.Read(s.idPrefix[:]) // never fails, see crypto/rand
	return s, nil
}

// ServeHTTP handles one request. Unlike an [Endpoint] it does not check whether a web page of
// another origin made a browser send it. It panics only with [http.ErrAbortHandler], to close the
// connection for a fault; without faults it never panics.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.serveHTTP(w, r, direct) }

// entrance is how a request came in.
type entrance int

const (
	direct        entrance = iota // in process, or by the server of somebody else
	overNetHTTP                   // by an endpoint, through net/http
	overPlainHTTP                 // by an endpoint, through our own loop, whose handlers must not wait
)

// serveHTTP is ServeHTTP; for an endpoint it checks the origin of browsers' requests.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request, by entrance) {
	stream, broken := s.serve(w, r, by)
	if stream != nil {
		stream.runOver(w, r)
	}
	if broken != nil {
		if errors.Is(broken, errReset) {
			// So that the client reads an error and not EOF. Below TLS, because a close_notify would be an EOF.
			if c := countedConnOf(r.Context()); c != nil { // nil if another server calls the handler
				c.reset()
			}
		}
		panic(http.ErrAbortHandler)
	}
}

// serve handles one request. It returns a stream that the caller runs, whose response only has headers yet,
// or the error with which a fault closes the connection.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, by entrance) (_ *stream, broken error) {
	c := calls.Get().(*call)
	c.server, c.request, c.writer, c.header, c.operation = s, r, w, w.Header(), Unknown
	defer c.release()
	if s.log != nil {
		c.began = time.Now()
	}
	c.setCommonHeaders()
	f := c.route()
	if by != direct {
		f = cmp.Or(c.checkPage(), f)
	}
	c.tally = s.counters.operations[c.operation]
	c.tally.requests.Add(1)
	switch {
	case f != nil:
	case c.operation.isBilled():
		f, broken = c.injectFault(by)
	}
	if f == nil && broken == nil {
		f = c.execute()
	}
	switch {
	case r.Context().Err() != nil: // the client has left
		if c.stream != nil {
			c.stream.close()
		}
		c.status, c.body = errTimedOut.status, nil
		c.logRequest(0, "")
	case broken != nil || c.injection.kind == FaultDrop:
		c.logRequest(0, "")
		return nil, cmp.Or(broken, errDrop)
	default:
		if f != nil {
			c.writeError(f)
		}
		c.setCORSHeaders()
		c.countResponse(f)
		if c.stream != nil {
			return c.stream, nil
		}
	}
	c.write(w)
	return nil, nil
}

// Constant header values. They are never modified: in-process clients get copies.
var (
	serverName  = []string{"Millrace-Queue/1.0"}
	noStore     = []string{"no-store"}
	versionName = []string{newestVersion}
	typeXML     = []string{"application/xml"}
)

// dateHeader is the Date header for one second. It never changes.
type dateHeader struct {
	second int64
	text   []string
}

// date returns the current Date header, which it formats once a second.
func (s *Server) date() []string {
	now := time.Now()
	last := s.lastDateHeader.Load()
	if last == nil || last.second != now.Unix() {
		last = &dateHeader{now.Unix(), []string{string(queuexml.AppendTime(nil, now))}}
		s.lastDateHeader.Store(last)
	}
	return last.text
}

// RoundTrip handles a request in process, as an endpoint would. With the Server as its Transport
// an [http.Client] needs no network and works in a testing/synctest bubble. A request to https
// counts as TLS. The host in the request's URL matters only if it names an account.
//
// If the context ends before the response, RoundTrip fails with the context's cause;
// [Options].Delay says what has happened by then.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer func() { _ = r.Body.Close() }() // the contract of http.RoundTripper
	}
	ctx := r.Context()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	in, err := incoming(r)
	if err != nil {
		return nil, err
	}
	w := &response{header: make(http.Header, 8)}
	stream, broken := s.serve(w, in, direct)
	if stream != nil {
		w.status = http.StatusOK
		return w.streaming(r, stream), nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if broken != nil {
		return nil, broken
	}
	return w.outgoing(r), nil
}

// incoming converts a client's request to the one that a server receives.
func incoming(r *http.Request) (*http.Request, error) {
	if r.URL == nil {
		return nil, errors.New("emulator: request without URL")
	}
	address, err := url.ParseRequestURI(r.URL.RequestURI())
	if err != nil {
		return nil, errors.New("emulator: the address of the request cannot be sent over HTTP") // err contains the receipt
	}
	in := (&http.Request{
		Method:        r.Method,
		URL:           address,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        make(http.Header, len(r.Header)),
		Body:          http.NoBody,
		ContentLength: r.ContentLength,
		Host:          r.Host,
		RequestURI:    r.URL.RequestURI(),
		RemoteAddr:    "in-process",
	}).WithContext(r.Context())
	in.Method = cmp.Or(in.Method, http.MethodGet)
	if r.URL.Scheme == "https" {
		in.TLS = new(tls.ConnectionState) // marks the request as secure
	}
	in.Host = cmp.Or(in.Host, r.URL.Host)
	for name, values := range r.Header {
		name = http.CanonicalHeaderKey(name)
		for _, value := range values {
			if strings.ContainsAny(name+value, "\r\n\x00") {
				return nil, errors.New("emulator: a header of the request cannot be sent over HTTP")
			}
			in.Header[name] = append(in.Header[name], strings.Trim(value, " \t")) // as it arrives
		}
	}
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		in.ContentLength = 0
	case r.ContentLength == 0:
		in.ContentLength = -1 // a body of unknown length goes in chunks
		in.Body = r.Body
	default:
		in.Body = io.NopCloser(io.LimitReader(r.Body, r.ContentLength))
	}
	return in, nil
}

// response records what a handler writes.
type response struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *response) Header() http.Header         { return w.header }
func (w *response) WriteHeader(status int)      { w.status = status }
func (w *response) Write(p []byte) (int, error) { return w.body.Write(p) }

// outgoing converts a server's response to the one that a client receives.
func (w *response) outgoing(r *http.Request) *http.Response {
	out := &http.Response{
		Status:        fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)),
		StatusCode:    w.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        make(http.Header, len(w.header)),
		Body:          http.NoBody,
		ContentLength: int64(w.body.Len()),
		Request:       r,
	}
	for name, values := range w.header {
		out.Header[http.CanonicalHeaderKey(name)] = slices.Clone(values)
	}
	if r.Method == http.MethodHead { // the length of what a GET would have brought
		out.ContentLength, _ = strconv.ParseInt(out.Header.Get("Content-Length"), 10, 64)
	}
	if w.body.Len() > 0 {
		out.Body = io.NopCloser(&w.body)
	}
	return out
}
