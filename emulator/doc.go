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
// tells how many of which kind, with empty dequeues told from others.
//
// # Faults
//
// [Options].Faults make requests fail, hang, happen twice or lose their answer,
// by chance that a seed fixes, by number or always; [ParseFaults] reads them from
// text such as "get:503@5%, delete:drop@#3". [Options].Limits refuse what is more
// than an account or a queue takes in a second. Both act the same in process and
// on a socket, but that a client on a socket may itself repeat what it thinks
// safe: net/http repeats a GET when a connection it had used before breaks. Such
// a repetition is a request like any other. Without faults and limits a request
// costs two comparisons more. [Options].Log tells of every request.
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
// are neither. No key, signature, token, receipt or text is ever in an error or a
// log.
//
// # Concurrency and shutdown
//
// Everything is safe for concurrent use. [Endpoint.Close] and
// [Endpoint.Shutdown] return when the goroutines of the endpoint have ended.
package emulator
