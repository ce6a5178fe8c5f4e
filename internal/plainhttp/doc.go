// Package plainhttp serves ordinary HTTP/1.1 requests with less CPU time than net/http,
// and hands every connection that sends anything else over to net/http, which remains the
// authority on unusual requests.
//
// The server of net/http supports requests and responses of any form and length. It has a
// goroutine that watches the connection while a handler runs, sets five deadlines a
// request, sorts headers, and passes bytes through several writers. The requests of a queue
// are small and complete, and its handlers return at once. Here a connection has one
// goroutine, which reads a request, calls the handler and writes the response.
//
// # Plain requests
//
// A request is plain if
//   - its head has at most 16 KiB;
//   - the method is GET, HEAD, PUT, POST, DELETE or OPTIONS, the target begins with a slash
//     and consists of visible ASCII characters, and the version is HTTP/1.1;
//   - every line ends with CR LF, and no line continues another;
//   - header values are printable ASCII;
//   - it has exactly one Host and at most one Content-Length, in digits, up to 256 KiB;
//   - it has no Expect, Pragma, Trailer, Transfer-Encoding or Upgrade, and no Connection
//     other than keep-alive;
//   - its handler neither waits nor sends a response while it writes it ([Server].HandOver).
//
// On the first request that is not plain, the responses to earlier ones are sent, and the
// connection is handed over to the [http.Server] for good, with the bytes that were read
// and without deadlines. So net/http alone decides whatever two programs might interpret
// differently, above all request smuggling. Its header timeout starts again then, so a head
// may take up to twice the timeout.
//
// # Handlers
//
// A handler gets the same request as from net/http, except for the context: it ends when
// the body cannot be read or the server is closed, but not when the client leaves. So
// handlers should not wait for long. The request, its headers and body, and the headers of
// the response are reused for the connection's next request: a handler must not use them
// after it has returned. It may keep strings; they share the memory of the whole head.
//
// The response is sent when the handler has returned, with a Content-Length. So there is
// no Flusher, no Hijacker, no trailers, no chunks and no 1xx responses; the headers Trailer
// and Transfer-Encoding are dropped. If the handler has set the Content-Length, a large
// write is sent at once. As in net/http, the request body is read to its end before the
// response is sent, header values never contain a line break, missing Date and Content-Type
// are added, and a panic in a handler closes the connection ([http.ErrAbortHandler]
// without a log entry).
//
// # Concurrency, shutdown and time
//
// A [Server] is safe for concurrent use. [Server.Shutdown] lets every request whose head
// was read finish, and closes all other connections at once. When it or [Server.Close]
// returns, nothing of the server runs any more, handed over or not.
//
// The timeouts are those of the [http.Server]. Deadlines are set rarely: a connection that
// is idle or does not read its response is closed up to a sixteenth later.
//
// # Cost
//
// An idle connection has a goroutine and a buffer of 4 KiB. A request allocates one string
// for its head, and nothing else. The responses to pipelined requests that arrive together
// are sent together.
package plainhttp
