package emulator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Endpoint is a [Server] that listens on a socket. [Server.Start] makes it; one
// of Close and Shutdown must be called. It is safe for concurrent use.
type Endpoint struct {
	server   *http.Server
	address  net.Addr
	done     chan struct{} // closed when the accepting goroutine has ended
	serveErr error         // written before done is closed
	// connections counts open connections. Their goroutines count themselves
	// in before the accepting goroutine ends, so waiting after done is sound.
	connections sync.WaitGroup
}

// Start listens on the address, a loopback one such as "127.0.0.1:10001", and
// serves it until the endpoint is closed. Port 0 means any free one, and ""
// means "127.0.0.1:0". It fails when the address is not a loopback one or is
// taken. Any number of endpoints can serve one server.
func (s *Server) Start(address string) (*Endpoint, error) {
	if address == "" {
		address = "127.0.0.1:0"
	}
	if err := checkLoopback(address); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("emulator: %w", err)
	}
	e := &Endpoint{address: listener.Addr(), done: make(chan struct{})}
	e.server = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30*time.Second + s.delay, // when it ends, so does the request's context
		WriteTimeout:      30*time.Second + s.delay,
		IdleTimeout:       2 * time.Minute, // Azurite's 5 s makes clients race closing connections
		MaxHeaderBytes:    64 << 10,        // metadata has 8 KiB, in up to 4,096 lines
		ErrorLog:          log.New(io.Discard, "", 0),
		ConnState:         e.count,
	}
	go func() {
		defer close(e.done)
		if err := e.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			e.serveErr = fmt.Errorf("emulator: %w", err)
		}
	}()
	return e, nil
}

// count keeps track of connections: New before their goroutine starts, Closed
// as the last thing it does.
func (e *Endpoint) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		e.connections.Add(1)
	case http.StateClosed:
		e.connections.Done()
	}
}

// Close stops listening, closes all connections and waits until nothing of the
// endpoint runs. Requests on the way are cut off. It returns why the endpoint
// had stopped serving by itself, if it had; closing again is fine.
func (e *Endpoint) Close() error {
	_ = e.server.Close() // says what wait says, and that closing twice is no news
	return e.wait()
}

// Shutdown stops listening, lets requests on the way finish, and waits until
// nothing of the endpoint runs. When ctx ends first, it cuts the rest off like
// Close and returns the context's error.
func (e *Endpoint) Shutdown(ctx context.Context) error {
	if err := e.server.Shutdown(ctx); err != nil {
		_ = e.Close()
		return err
	}
	return e.wait()
}

func (e *Endpoint) wait() error {
	<-e.done
	e.connections.Wait()
	return e.serveErr
}

// Addr is where the endpoint listens.
func (e *Endpoint) Addr() net.Addr { return e.address }

// URL is the address of the development account, without a slash at its end.
func (e *Endpoint) URL() string { return accountURL(e.address.String(), DevelopmentAccount) }

// ConnectionString is what a client needs to reach the development account
// here. Its key is public knowledge.
func (e *Endpoint) ConnectionString() string { return connectionString(e.address.String()) }

// inProcess is the host of addresses that only work in process. The top-level
// domain never resolves (RFC 2606), so a client that was not given the
// transport fails instead of reaching someone else's server.
const inProcess = "millrace.invalid"

// URL is the address of the development account for clients whose transport is
// the server, without a slash at its end.
func (s *Server) URL() string { return accountURL(inProcess, DevelopmentAccount) }

// ConnectionString is what a client whose transport is the server needs to
// reach the development account.
func (s *Server) ConnectionString() string { return connectionString(inProcess) }

func accountURL(host, account string) string { return "http://" + host + "/" + account }

func connectionString(host string) string {
	return strings.Join([]string{
		"DefaultEndpointsProtocol=http",
		"AccountName=" + DevelopmentAccount,
		"AccountKey=" + DevelopmentKey,
		"QueueEndpoint=" + accountURL(host, DevelopmentAccount),
	}, ";") + ";"
}

func checkLoopback(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("emulator: address %q is not host:port: %w", address, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("emulator: address %q is not a loopback address: the development account's key is public, so only this machine may reach it", address)
	}
	return nil
}
