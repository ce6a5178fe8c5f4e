// Package emulator serves the REST protocol of Azure Queue Storage over the
// embedded engine of package localqueue, so that a laptop, a test and a cloud
// deployment run the same client code and differ by one address.
//
// A [Server] responds in process, as the transport of an [net/http.Client], and
// on a socket ([Server.Start], [Server.StartTLS]), with the same status, headers
// and body bytes. In process it opens no socket and starts no goroutine, so that a
// client, the protocol and the engine all run in one testing/synctest bubble.
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # Protocol
//
// The server implements every operation of the Queue service, in the versions
// 2017-07-29 to 2026-04-06. Addresses are path-style as in Azurite,
// /account/queue/messages/id, or host-style as in the service,
// account.queue.localhost/queue/messages/id. The suffix -secondary of the account
// means its secondary location, which reads the same data. Limits, status and error
// codes are those that Microsoft documents, also where Azurite is laxer.
// docs/protocol.md lists the response to each kind of request, next to Azurite's; a
// test compares it with the code.
//
// Logging and metrics settings are stored and returned, but have no effect. CORS
// rules have. Metadata names are returned in lower case, because HTTP does not
// preserve their case.
//
// # Delivery and cost
//
// Delivery is that of the engine. Every request is one transaction. [Server.Counts]
// returns the number of requests and their outcomes by operation, and the number of
// empty dequeues.
//
// # Faults and quotas
//
// [Options].Faults makes requests fail on purpose, at a rate, at every n-th request, or
// at given numbers: responses with 503, 500, 408 and 403, connections reset before the work
// or closed after it, delays, and requests that are executed twice. [ParseFaults] parses
// them from a text such as
//
//	dequeue:503@5% *:delay=200ms@10% delete:drop@#3,7 put:500@1/100
//
// The same sequence of requests has the same faults, in process and on a socket.
// [Server.SetFaults] replaces them while the server runs, on open connections too, and so
// does an authorized request (docs/protocol.md), so that an outage can be played.
// [Options].Quotas limits the messages of a queue and the requests of an account per
// second; the server refuses others with 503 ServerBusy. [Options].Log gets every
// request with its outcome and its fault. [Counts.String] formats the bill, line by
// line. Without faults, quotas and log, a request costs one comparison for each.
//
// # Security
//
// Requests are authorized by Shared Key or Shared Key Lite, by an account SAS, a
// service SAS with or without a stored access policy, a user delegation SAS, or
// over TLS by a bearer token, and refused otherwise. Signatures are compared in
// constant time. The server checks the issuer, audience and times of a token, but
// not its signature, because a local server has no keys for it. So tokens, like the
// development account's public key, protect nothing, and endpoints listen on
// loopback addresses only. [Options].Public allows other addresses, and then neither
// tokens nor that key are accepted.
//
// Endpoints also refuse what a foreign web page makes a browser send: requests whose
// Host is neither this machine nor one of [Options].Hosts, and requests that a browser
// marks as those of another origin, unless a CORS rule allows them. In process this is
// not checked.
//
// A request is refused if another request has the same string to sign. Errors and logs
// contain no key, signature, token, receipt or text.
//
// # Concurrency and shutdown
//
// Everything is safe for concurrent use. An endpoint has one goroutine for each
// connection, and some more where net/http serves: with TLS, a delay or faults, and
// for connections that send anything but ordinary HTTP/1.1 requests. With delays or
// faults, a request is not executed if its client leaves before the work begins;
// otherwise the work begins at once. [Endpoint.Close] and [Endpoint.Shutdown] return
// when all goroutines of the endpoint have ended.
package emulator
