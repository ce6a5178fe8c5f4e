package emulator

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/plainhttp"
)

// Endpoint is a [Server] that listens on a socket. [Server.Start] and [Server.StartTLS] create
// it; Close or Shutdown must be called. It is safe for concurrent use.
type Endpoint struct {
	_ [0]sync.Mutex // go vet reports copies

	of       *Server
	server   connections
	budget   *budget
	scheme   string
	address  net.Addr
	done     chan struct{} // closed when the accept goroutine has ended
	stop     func()        // ends wake-up streams, which would never end by themselves
	serveErr error         // written before done is closed
}

// Start listens on the address, a loopback one such as "127.0.0.1:10001", and serves it until the
// endpoint is closed. Port 0 means any free port, and "" means "127.0.0.1:0". It fails if the
// address is in use, or if other machines could reach it without [Options].Public.
func (s *Server) Start(address string) (*Endpoint, error) { return s.start(address, nil) }

// StartTLS is Start with TLS, which bearer tokens and https-only signatures require. The
// configuration must have a certificate; it is copied. Like the service, the endpoint supports
// HTTP/1.1 only.
func (s *Server) StartTLS(address string, config *tls.Config) (*Endpoint, error) {
	if config == nil || len(config.Certificates) == 0 && config.GetCertificate == nil && config.GetConfigForClient == nil {
		return nil, errors.New("emulator: TLS without a certificate: load one with tls.LoadX509KeyPair")
	}
	return s.start(address, config.Clone())
}

// start listens, without TLS if config is nil. A server can have any number of endpoints.
func (s *Server) start(address string, config *tls.Config) (*Endpoint, error) {
	address = cmp.Or(address, "127.0.0.1:0")
	if err := s.checkAddress(address); err != nil {
		return nil, err
	}
	return s.listen(address, config, timeouts{
		header:   10 * time.Second,
		request:  requestWithin + s.delay,
		response: requestWithin + s.delay,
		idle:     2 * time.Minute, // Azurite's 5 s makes clients race closing connections
	}, nil)
}

// requestWithin is how long a request may take without delays, and its response.
const requestWithin = 30 * time.Second

// timeouts limit how long an endpoint waits for a slow or idle client before it closes the
// connection.
type timeouts struct {
	header   time.Duration // TLS handshake, request line and headers
	request  time.Duration // request with its body; then its context ends
	response time.Duration // reading the response, from the end of the headers
	idle     time.Duration // between requests
}

// maxHeader limits the request line and headers in bytes. Metadata alone has 8 KiB, in up to
// 4,096 lines.
const maxHeader = 64 << 10

// listen is start with timeouts and a writer for the error log of [http.Server]; nil discards it.
func (s *Server) listen(address string, config *tls.Config, wait timeouts, errorLog io.Writer) (*Endpoint, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("emulator: %w", err)
	}
	return s.serveOn(listener, config, wait, errorLog), nil
}

func (s *Server) serveOn(listener net.Listener, config *tls.Config, wait timeouts, errorLog io.Writer) *Endpoint {
	errorLog = cmp.Or(errorLog, io.Discard)
	stopping := make(chan struct{})
	e := &Endpoint{of: s, budget: newBudget(s.memory, config != nil), scheme: "http", address: listener.Addr(), done: make(chan struct{}), stop: sync.OnceFunc(func() { close(stopping) })}
	server := &http.Server{
		Handler:           s.handler(overNetHTTP),
		Protocols:         new(http.Protocols),
		ReadHeaderTimeout: wait.header,
		ReadTimeout:       wait.request,
		WriteTimeout:      wait.response,
		IdleTimeout:       wait.idle,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          log.New(errorLog, "", 0),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(context.WithValue(ctx, connectionKey{}, c), stoppingKey{}, stopping)
		},
		TLSConfig: config,
	}
	server.Protocols.SetHTTP1(true) // handlers of HTTP/2 outlive their connections
	if config != nil {
		e.scheme = "https"
	}
	e.server = s.connections(server)
	listener = countedListener{listener, e.budget}
	go func() {
		defer close(e.done)
		if err := e.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			e.serveErr = fmt.Errorf("emulator: %w", err)
		}
	}()
	return e
}

// handler handles the requests of an endpoint: those for the front page go to Options.Front, all
// others to the protocol.
func (s *Server) handler(by entrance) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.front != nil && s.isFrontRequest(r) && s.checkPage(r) == nil {
			s.front.ServeHTTP(w, r)
			return
		}
		s.serveHTTP(w, r, by)
	})
}

// isFrontRequest reports whether a browser that was pointed at the endpoint sends this request,
// and no client of the protocol does: it names no account and has no credentials.
func (s *Server) isFrontRequest(r *http.Request) bool {
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead,
		r.URL.Path != "/" && r.URL.Path != "/favicon.ico",
		r.URL.RawQuery != "" || r.Header.Get("Authorization") != "":
		return false
	}
	_, hosted := s.inHost(r.Host)
	return !hosted
}

// Close stops listening, closes all connections and waits until nothing of the endpoint runs.
// Requests in progress are aborted. It returns the error with which the endpoint had stopped
// serving by itself, if any, and can be called again.
func (e *Endpoint) Close() error {
	e.stop()
	e.server.Close()
	<-e.done
	return e.serveErr
}

// Shutdown stops listening, lets requests in progress finish, and waits until nothing of the
// endpoint runs. Wake-up streams end at once. If ctx ends first, it aborts the rest like Close and
// returns the context's error.
func (e *Endpoint) Shutdown(ctx context.Context) error {
	e.stop()
	if err := e.server.Shutdown(ctx); err != nil {
		_ = e.Close()
		return err
	}
	<-e.done
	return e.serveErr
}

// Done returns a channel that is closed when the endpoint no longer listens: it was closed, or
// failed with the error that Close returns.
func (e *Endpoint) Done() <-chan struct{} { return e.done }

// Addr returns the address on which the endpoint listens.
func (e *Endpoint) Addr() net.Addr { return e.address }

// URL returns the address of the development account, without a trailing slash, or of the first
// account by name if that one is not served.
func (e *Endpoint) URL() string { return e.AccountURL(e.of.mainAccount()) }

// ConnectionString returns a connection string for the account of URL, with its key.
func (e *Endpoint) ConnectionString() string {
	return e.of.connectionString(e.scheme, e.host(), e.of.mainAccount())
}

// AccountURL returns the address of an account, without a trailing slash, whether or not it
// exists.
func (e *Endpoint) AccountURL(account string) string { return accountURL(e.scheme, e.host(), account) }

// AccountConnectionString returns a connection string for an account, with its key. It fails if
// the account does not exist.
func (e *Endpoint) AccountConnectionString(account string) (string, error) {
	if e.of.accounts[account] == nil {
		return "", fmt.Errorf("emulator: no account %q: name it, with its key, in Options.Accounts", account)
	}
	return e.of.connectionString(e.scheme, e.host(), account), nil
}

// host returns the address under which clients on this machine reach the endpoint: 127.0.0.1 if
// it listens on all addresses.
func (e *Endpoint) host() string {
	at, err := netip.ParseAddrPort(e.address.String())
	if err != nil || !at.Addr().IsUnspecified() {
		return e.address.String()
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(at.Port())))
}

// inProcess is the host of in-process addresses. Its top-level domain never resolves (RFC 2606),
// so a client without the in-process transport fails instead of reaching another server.
const inProcess = "millrace.invalid"

// URL returns the address of the development account for clients whose transport is the server,
// without a trailing slash, or of the first account by name if that one is not served.
func (s *Server) URL() string { return accountURL("http", inProcess, s.mainAccount()) }

// ConnectionString returns a connection string for the account of URL, for clients whose
// transport is the server.
func (s *Server) ConnectionString() string {
	return s.connectionString("http", inProcess, s.mainAccount())
}

// mainAccount returns the account that is used if none is named.
func (s *Server) mainAccount() string {
	if s.accounts[DevelopmentAccount] != nil || len(s.accounts) == 0 {
		return DevelopmentAccount
	}
	return slices.Min(slices.Collect(maps.Keys(s.accounts)))
}

func accountURL(scheme, host, account string) string { return scheme + "://" + host + "/" + account }

func (s *Server) connectionString(scheme, host, account string) string {
	var key []byte
	if known := s.accounts[account]; known != nil {
		key = known.key
	}
	return strings.Join([]string{
		"DefaultEndpointsProtocol=" + scheme,
		"AccountName=" + account,
		"AccountKey=" + base64.StdEncoding.EncodeToString(key),
		"QueueEndpoint=" + accountURL(scheme, host, account),
	}, ";") + ";"
}

func (s *Server) checkAddress(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("emulator: address %q is not host:port: %w", address, err)
	}
	if s.public {
		return nil
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("emulator: address %q is not a loopback address: the development account's key is public, so only this machine may reach it: set Options.Public to allow others", address)
	}
	return nil
}

// checkAccess refuses accounts whose keys protect nothing, and invalid hosts.
func (s *Server) checkAccess() error {
	for name, account := range s.accounts {
		if len(account.key) == 0 {
			return fmt.Errorf("emulator: account %q has an empty key, with which anyone could sign: give it one in Options.Accounts", name)
		}
	}
	if s.public {
		if err := s.checkPublic(); err != nil {
			return err
		}
	}
	return checkHosts(s.hosts)
}

// minPublicKey is the shortest account key of a public server, in bytes.
const minPublicKey = 16

// checkPublic refuses accounts whose keys do not protect a public server.
func (s *Server) checkPublic() error {
	if len(s.accounts) == 0 {
		return errors.New("emulator: a public emulator has no accounts by default: name some, with their keys, in Options.Accounts")
	}
	public := wellKnownKey()
	for name, account := range s.accounts {
		switch {
		case bytes.Equal(account.key, public):
			return fmt.Errorf("emulator: account %q has the development account's key, which everyone knows: "+
				"give it another one in Options.Accounts if other machines can reach it (openssl rand -base64 64 makes one)", name)
		case len(bytes.TrimRight(account.key, "\x00")) < minPublicKey: // HMAC pads keys with zeros
			return fmt.Errorf("emulator: the key of account %q has fewer than %d bytes, so that other machines can guess it: "+
				"give it a longer one in Options.Accounts (openssl rand -base64 64 makes one)", name, minPublicKey)
		}
	}
	return nil
}

// connections serves an endpoint's connections. Serve returns [http.ErrServerClosed] after one of
// the other methods was called; those return when nothing runs any more.
type connections interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
	Close()
}

// connections returns net/http for TLS, and if all handlers wait. Then the context must end when a
// client leaves, so that an abandoned request does not start after its delay, and net/http
// watches the connection for that. Otherwise handlers return at once, and watching would cost as
// much as they do.
func (s *Server) connections(server *http.Server) connections {
	if server.TLSConfig != nil || s.delay > 0 {
		w := &waitingServer{server: server, served: make(chan struct{})}
		server.ConnState = w.count
		return w
	}
	p := plainhttp.New(server)
	// net/http must serve a request that may be for a stream, and every one while there are faults. A
	// connection that was idle when they were set is handed over with its next request.
	p.HandOver = func(method, query string) bool {
		return s.faults.Load() != nil || method == http.MethodGet && strings.Contains(query, wakeupQuery)
	}
	p.Handler = s.handler(overPlainHTTP)
	return p
}

// waitingServer is an [http.Server] that waits for its connections. Serve must be called once.
type waitingServer struct {
	server *http.Server
	served chan struct{}  // closed when Serve returns
	conns  sync.WaitGroup // open connections; added before Serve returns, so that Wait after it is correct
}

// count tracks connections: StateNew comes before their goroutine starts, StateClosed is its last
// action.
func (w *waitingServer) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		w.conns.Add(1)
	case http.StateClosed:
		w.conns.Done()
	}
}

func (w *waitingServer) Serve(listener net.Listener) error {
	defer close(w.served)
	if w.server.TLSConfig != nil {
		return w.server.ServeTLS(listener, "", "")
	}
	return w.server.Serve(listener)
}

func (w *waitingServer) Close() {
	_ = w.server.Close() // Serve returns the error; closing twice is fine
	w.wait()
}

func (w *waitingServer) Shutdown(ctx context.Context) error {
	if err := w.server.Shutdown(ctx); err != nil {
		w.Close()
		return err
	}
	w.wait()
	return nil
}

func (w *waitingServer) wait() {
	<-w.served
	w.conns.Wait()
}
