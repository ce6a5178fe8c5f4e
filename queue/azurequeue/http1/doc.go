// Package http1 sends a queue client's requests over HTTP/1.1 for less than half of
// net/http's CPU time. It is an option for workers that are limited by the CPU:
//
//	transport, err := http1.New(nil)
//	…
//	defer transport.Close()
//	q, err := azurequeue.Open(location, "orders", &azurequeue.Options{Transport: transport})
//
// The transport of net/http uses one goroutine to write a request and another to read the
// response, so that requests can stream, be upgraded or be cut short by an early response.
// The requests and responses of a queue are small and complete. Here the caller's
// goroutine writes one and reads the other, on a connection that it owns meanwhile.
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # Supported requests
//
// Requests to http and https addresses with a body of known length, up to 1 MiB.
// Responses may have a length, be chunked, or end with the connection; Do returns when
// the body has been read. [Options.Fallback], net/http by default, sends everything else:
// requests through a proxy, bodies of unknown length, methods other than DELETE, GET,
// POST and PUT, Expect, Upgrade, trailers, internationalized host names, and malformed
// requests, which it refuses with a better error. There is no HTTP/2, no compression, no
// cookie and no redirect, and httptrace reports nothing.
//
// # Delivery
//
// A request is sent once. If the connection breaks, new or reused, Do returns an error
// and the outcome is unknown; net/http would send some requests again. Before a
// connection is reused its socket is peeked at, through TLS if there is any. So a
// connection that the server closed meanwhile costs no request, and unsolicited data is
// never taken for a response. On systems other than Unix a socket cannot be peeked at:
// only buffered data is seen, and a connection that was idle for a second is not reused.
//
// If a server refuses a request before reading all of it and closes the connection, Do
// returns its response.
//
// An error before the request could be sent is a [*net.OpError] of a dial, as with
// net/http. No error contains the request's query or headers.
//
// # Concurrency, shutdown and time
//
// A [Transport] is safe for concurrent use. It has no goroutine; a timer or
// [Transport.Close] closes idle connections. A request ends with its context and returns
// the context's cause. Time is read from package time alone, so that with an in-memory
// [Options.DialContext] it runs in a testing/synctest bubble.
package http1
