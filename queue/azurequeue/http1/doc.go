// Package http1 sends the requests of a queue client over HTTP/1.1 for less than
// half of the processor time that net/http takes. It is for workers that are bound
// by the processor, and optional:
//
//	transport := http1.New(nil)
//	defer transport.Close()
//	q, err := azurequeue.Open(location, "orders", &azurequeue.Options{Transport: transport})
//
// net/http's transport hands each request to one goroutine that writes and another
// that reads, so that a request may stream, be upgraded or be hurried by an early
// answer. A queue's requests are small and whole, and so are its answers: here the
// caller's own goroutine writes one and reads the other, on a connection that is
// its own meanwhile.
//
// # What it does, and what net/http does
//
// Requests with a body of known length, up to 1 MiB, to http and https addresses;
// answers of a known length, in chunks, or up to the end of the connection, which
// are read whole before Do returns. Everything else is net/http's, through
// [Options.Fallback]: requests through a proxy, bodies of unknown length, methods
// other than DELETE, GET, POST and PUT, Expect, Upgrade, trailers, international
// host names, and whatever is not well formed and shall be refused by one that
// knows why. There is no HTTP/2, no compression, no cookie and no redirect, and
// httptrace sees nothing.
//
// # Delivery
//
// A request is sent once. When the connection breaks under it, used before or not,
// that is an error, from which a caller must conclude that the outcome is unknown;
// net/http would send some of them again, without telling. Before a connection is
// used again it is looked at, through TLS where there is TLS, so that one that the
// server has closed meanwhile costs no request, and what a server said unasked is
// never taken for an answer. Where sockets cannot be looked at, which is so on
// systems that are not Unix, only what has been read already is seen, and a
// connection that was idle for a second is not used again.
//
// A server that refuses a request before it was sent whole is heard, if it hangs up.
//
// An error before the request could be sent is a [*net.OpError] of a dial, as with
// net/http. No error has the request's query or its headers in it.
//
// # Concurrency, shutdown and time
//
// A [Transport] is safe for concurrent use. It has no goroutine; idle connections
// are closed by a timer, or by [Transport.Close]. A request ends when its context
// does, with the context's cause. Time is read from package time alone, so that
// with an [Options.DialContext] in memory it runs in a testing/synctest bubble.
package http1
