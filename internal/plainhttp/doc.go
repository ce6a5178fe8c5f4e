// Package plainhttp serves ordinary requests of HTTP/1.1 for less processor time
// than net/http takes, and gives every connection that sends anything else to
// net/http, which stays the authority on all that is odd.
//
// net/http's server is made for requests and answers of any form and length: it has
// a goroutine that watches the connection while a handler runs, sets five deadlines
// a request, sorts headers, and passes bytes through several writers. The requests
// of a queue are small and whole and its handlers answer at once: here a connection
// has one goroutine, which reads a request, calls the handler and writes the answer.
//
// # What is plain
//
// A request is plain when its head has at most 16 KiB, and its first line is one of
// the methods GET, HEAD, PUT, POST, DELETE and OPTIONS, a target that begins with a
// slash and has visible characters of ASCII only, and HTTP/1.1; when every line ends
// with CR LF and no line continues another; when the values of its headers are
// printable ASCII; when it has exactly one Host and at most one Content-Length, in
// digits, up to 256 KiB; and when it has no Expect, Pragma, Trailer,
// Transfer-Encoding or Upgrade, and no Connection but keep-alive.
//
// The first request that is not, as far as it has come, ends our part: answers to
// earlier ones are sent, and the connection goes to the [http.Server] for good, with
// the bytes that were read and no deadlines. So whatever two programs might
// understand in two ways, request smuggling above all, is decided by net/http alone.
// Its patience begins anew then, so that a head takes up to twice its time-out.
//
// # What handlers get
//
// The same request as from net/http, but for the context: it ends when the body
// cannot be read or the server is closed, and not when a client leaves. So handlers
// should not wait for long. The request, its headers and its body, and the headers
// of the answer are used again for the next request of the connection: a handler may
// not use them after it has returned. Strings may be kept; they share the memory of
// the whole head.
//
// The answer goes out when the handler has returned, with a Content-Length. So there
// is no Flusher and no Hijacker, there are no trailers, no chunks and no answers 1xx;
// what a handler sets of Trailer and Transfer-Encoding is left out. A large write for
// which the handler has set the Content-Length goes out at once. As in net/http, the
// body of a request is read to its end before the answer is sent, a header never
// has a line break, Date and Content-Type are added when they are missing, and a
// handler that panics loses its connection, with [http.ErrAbortHandler] silently.
//
// # Concurrency, shutdown and time
//
// A [Server] is safe for concurrent use. [Server.Shutdown] lets every request whose
// head has come be answered and closes all other connections at once; when it or
// [Server.Close] returns, nothing of the server runs any more, handed over or not.
//
// The time-outs are those of the [http.Server]. Timers are set rarely: a connection
// that is idle, or takes no answer, is closed up to a sixteenth later than they say.
//
// # Cost
//
// An idle connection has a goroutine and a buffer of 4 KiB. A request makes one
// string of its head, and nothing else that the collector has to see. Requests that
// were sent in one go are answered in one go.
package plainhttp
