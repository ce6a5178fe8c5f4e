// Package emulator serves the REST protocol of Azure Queue Storage over the
// embedded engine of package localqueue, so that a laptop, a test and a cloud
// deployment run the same client code and differ by one address.
//
// A [Server] answers in process, as the transport of an [net/http.Client], and
// on a socket ([Server.Start], [Server.StartTLS]), with the same status, headers
// and body to the byte. In process it opens no socket and starts no goroutine, so
// that a client, the protocol and the engine all run in one testing/synctest
// bubble.
//
// # Protocol
//
// Every operation of the Queue service is served, in its versions 2017-07-29 to
// 2026-04-06, at path-style addresses, /account/queue/messages/id, as of Azurite,
// and at host-style ones, account.queue.localhost/queue/messages/id, as of the
// service; with the suffix -secondary the account's secondary location, which has
// the same to read. Limits, status and error codes are those Microsoft documents;
// where Azurite is laxer the documents win. docs/protocol.md lists what comes of
// each kind of request, next to what Azurite answers, and a test holds it.
//
// Logging and metrics are settings that are kept and given back, and change
// nothing. CORS rules are obeyed. Names of metadata come back in lower case: HTTP
// does not keep their case.
//
// # Delivery and cost
//
// Delivery is that of the engine. Every request is one transaction; [Server.Counts]
// tells how many of which kind and what came of them, with empty dequeues told from
// others.
//
// # Faults and limits
//
// [Options].Faults make requests fail on purpose, by a rate, at every so manieth, or
// at given numbers: 503, 500 and 408 answers, connections reset before the work and
// closed after it, delays, and requests that are done twice. [ParseFaults] reads them
// from a text such as
//
//	dequeue:503@5% *:delay=200ms@10% delete:drop@#3,7 put:500@1/100
//
// The same sequence of requests has the same faults, in process and on a socket.
// [Options].Limits are how many messages of a queue and requests of an account are
// served a second, before it is 503 ServerBusy. Every request, its outcome and its
// fault go to [Options].Log; [Counts.String] is the bill, line by line. Without
// faults, limits and log a request pays a comparison for each.
//
// # Security
//
// Requests are authorized by Shared Key or Shared Key Lite, by an account SAS, a
// service SAS with or without a stored access policy, a user delegation SAS, or
// over TLS by a bearer token, and refused otherwise. Signatures are compared in
// constant time. Of a token the issuer, the audience and the times are checked,
// but not the signature, for which a local server has no keys: tokens, like the
// development account's public key, protect nothing. So endpoints listen on
// loopback addresses only, unless [Options].Public says otherwise, and then there
// are neither. Nor do they take what a web page of somebody else makes a browser
// send: requests with another Host than this machine's own or one of
// [Options].Hosts, and those that a browser marks as another origin's, unless a
// CORS rule allows it. In process that is not checked.
//
// What has the same string to sign as another request is refused. No key, signature, token, receipt or text is ever in an error or a
// log.
//
// # Concurrency and shutdown
//
// Everything is safe for concurrent use. An endpoint has one goroutine for each
// connection, and some more where net/http serves: with TLS, delays or faults, and
// connections that send anything but ordinary requests of HTTP/1.1. With delays or
// faults a request whose client leaves before its work begins is not done; everywhere
// else the work begins at once. [Endpoint.Close] and [Endpoint.Shutdown] return when
// the goroutines of the endpoint have ended.
package emulator
