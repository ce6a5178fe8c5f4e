package emulator

import (
	"bytes"
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
	"time"
)

// Endpoint is a [Server] that listens on a socket. [Server.Start] and
// [Server.StartTLS] make it; one of Close and Shutdown must be called. It is safe
// for concurrent use.
type Endpoint struct {
	of       *Server
	server   connections
	scheme   string
	address  net.Addr
	done     chan struct{} // closed when the accepting goroutine has ended
	serveErr error         // written before done is closed
}

// Start listens on the address, a loopback one such as "127.0.0.1:10001", and
// serves it until the endpoint is closed. Port 0 means any free one, and ""
// means "127.0.0.1:0". It fails when the address is taken, and when other machines
// could reach it without [Options].Public.
func (s *Server) Start(address string) (*Endpoint, error) { return s.start(address, nil) }

// StartTLS is Start over TLS, which bearer tokens and signatures for https alone
// need. The configuration says with which certificate; it is copied. Like the
// service, the endpoint speaks HTTP/1.1 only.
func (s *Server) StartTLS(address string, config *tls.Config) (*Endpoint, error) {
	if config == nil || len(config.Certificates) == 0 && config.GetCertificate == nil && config.GetConfigForClient == nil {
		return nil, errors.New("emulator: TLS without a certificate: load one with tls.LoadX509KeyPair")
	}
	return s.start(address, config.Clone())
}

// start listens; a nil configuration means without TLS. Any number of endpoints
// can serve one server.
func (s *Server) start(address string, config *tls.Config) (*Endpoint, error) {
	if address == "" {
		address = "127.0.0.1:0"
	}
	if s.optionsErr != nil {
		return nil, s.optionsErr
	}
	if err := s.checkAddress(address); err != nil {
		return nil, err
	}
	slack := s.delay + s.totalFaultDelay()
	return s.listen(address, config, timeouts{
		header:  10 * time.Second,
		request: 30*time.Second + slack,
		answer:  30*time.Second + slack,
		idle:    2 * time.Minute, // Azurite's 5 s makes clients race closing connections
	}, nil)
}

// patience is how long an endpoint waits for a client that is slow, or does
// nothing at all, before it closes the connection.
type timeouts struct {
	header  time.Duration // for a handshake, and for the first line and the headers
	request time.Duration // for a request with its body; when it ends, so does its context
	answer  time.Duration // for taking the answer, from when the headers are there
	idle    time.Duration // between two requests
}

// maxHeader bounds the first line and the headers of a request. Metadata alone has
// 8 KiB, in up to 4,096 lines.
const maxHeader = 64 << 10

// listen is start with how long to wait, and a writer for what [http.Server] says of
// connections; nil means nowhere.
func (s *Server) listen(address string, config *tls.Config, wait timeouts, complaints io.Writer) (*Endpoint, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("emulator: %w", err)
	}
	if complaints == nil {
		complaints = io.Discard
	}
	e := &Endpoint{of: s, scheme: "http", address: listener.Addr(), done: make(chan struct{})}
	server := &http.Server{
		Handler:           http.HandlerFunc(s.answer),
		Protocols:         new(http.Protocols),
		ReadHeaderTimeout: wait.header,
		ReadTimeout:       wait.request,
		WriteTimeout:      wait.answer,
		IdleTimeout:       wait.idle,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          log.New(complaints, "", 0),
		ConnContext:       withConnection,
		TLSConfig:         config,
	}
	server.Protocols.SetHTTP1(true) // handlers of HTTP/2 outlive their connections
	if config != nil {
		e.scheme = "https"
	}
	e.server = s.connections(server)
	go func() {
		defer close(e.done)
		if err := e.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			e.serveErr = fmt.Errorf("emulator: %w", err)
		}
	}()
	return e, nil
}

// answer is what an endpoint does with a request: it goes to the front when it is
// for it, and to the protocol otherwise, which also refuses what no page may send.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	if s.front != nil && s.isFrontRequest(r) && s.checkPage(r) == nil {
		s.front.ServeHTTP(w, r)
		return
	}
	s.serveHTTP(w, r, true)
}

// atFront reports whether a request is what a browser sends that was pointed at the
// endpoint, and no client of the protocol does: it names no account and shows
// nothing to be let in with.
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

// Close stops listening, closes all connections and waits until nothing of the
// endpoint runs. Requests on the way are cut off. It returns why the endpoint
// had stopped serving by itself, if it had; closing again is fine.
func (e *Endpoint) Close() error {
	e.server.Close()
	<-e.done
	return e.serveErr
}

// Shutdown stops listening, lets requests on the way finish, and waits until
// nothing of the endpoint runs. When ctx ends first, it cuts the rest off like
// Close and returns the context's error.
func (e *Endpoint) Shutdown(ctx context.Context) error {
	if err := e.server.Shutdown(ctx); err != nil {
		_ = e.Close()
		return err
	}
	<-e.done
	return e.serveErr
}

// Done returns a channel that is closed when the endpoint no longer listens: it was
// closed, or could not go on, and then Close says why.
func (e *Endpoint) Done() <-chan struct{} { return e.done }

// Addr is where the endpoint listens.
func (e *Endpoint) Addr() net.Addr { return e.address }

// URL is the address of the development account, without a slash at its end.
// Where that account is not served it is the address of the first one by name.
func (e *Endpoint) URL() string { return e.AccountURL(e.of.mainAccount()) }

// ConnectionString is what a client needs to reach that account here, with its
// key.
func (e *Endpoint) ConnectionString() string {
	return e.of.connectionString(e.scheme, e.host(), e.of.mainAccount())
}

// AccountURL is the address of an account, without a slash at its end, whether
// or not there is one of that name.
func (e *Endpoint) AccountURL(account string) string { return accountURL(e.scheme, e.host(), account) }

// AccountConnectionString is what a client needs to reach an account here, with
// its key. It fails when there is no account of that name.
func (e *Endpoint) AccountConnectionString(account string) (string, error) {
	if e.of.accounts[account] == nil {
		return "", fmt.Errorf("emulator: no account %q: name it, with its key, in Options.Accounts", account)
	}
	return e.of.connectionString(e.scheme, e.host(), account), nil
}

// host is where clients on this machine reach the endpoint: one that listens on
// all addresses has none of its own.
func (e *Endpoint) host() string {
	at, err := netip.ParseAddrPort(e.address.String())
	if err != nil || !at.Addr().IsUnspecified() {
		return e.address.String()
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(at.Port())))
}

// inProcess is the host of addresses that only work in process. The top-level
// domain never resolves (RFC 2606), so a client that was not given the
// transport fails instead of reaching someone else's server.
const inProcess = "millrace.invalid"

// URL is the address of the development account for clients whose transport is
// the server, without a slash at its end. Where that account is not served it is
// the address of the first one by name.
func (s *Server) URL() string { return accountURL("http", inProcess, s.mainAccount()) }

// ConnectionString is what a client whose transport is the server needs to
// reach that account, with its key.
func (s *Server) ConnectionString() string {
	return s.connectionString("http", inProcess, s.mainAccount())
}

// mainAccount is the account that is meant when none is named.
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
	for name, account := range s.accounts {
		if len(account.key) == 0 {
			return fmt.Errorf("emulator: account %q has an empty key, with which anyone could sign: give it one in Options.Accounts", name)
		}
	}
	if err := checkHosts(s.hosts); err != nil {
		return err
	}
	if s.public {
		return s.checkPublic()
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("emulator: address %q is not a loopback address: the development account's key is public, so only this machine may reach it; Options.Public says otherwise", address)
	}
	return nil
}

// leastPublicKey is how many bytes a key has at least that other machines may guess at.
const minPublicKey = 16

// checkPublic refuses accounts that protect nothing where other machines come in.
func (s *Server) checkPublic() error {
	if len(s.accounts) == 0 {
		return errors.New("emulator: a public emulator has no accounts of its own: name some, with their keys, in Options.Accounts")
	}
	public := wellKnownKey()
	for name, account := range s.accounts {
		switch {
		case bytes.Equal(account.key, public):
			return fmt.Errorf("emulator: account %q has the development account's key, which everyone knows: "+
				"give it one of its own in Options.Accounts where other machines come in (openssl rand -base64 64 makes one)", name)
		case len(bytes.TrimRight(account.key, "\x00")) < minPublicKey: // HMAC takes a key and the same with zeros behind it for one
			return fmt.Errorf("emulator: the key of account %q has fewer than %d bytes, so that other machines can guess it: "+
				"give it a longer one in Options.Accounts (openssl rand -base64 64 makes one)", name, minPublicKey)
		}
	}
	return nil
}
