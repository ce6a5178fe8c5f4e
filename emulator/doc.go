// Package emulator serves the REST protocol of Azure Queue Storage over the
// embedded engine of package localqueue, so that a laptop, a test and a cloud
// deployment run the same client code and differ by one address.
//
// A [Server] answers in process, as the transport of an [net/http.Client], and
// on a loopback socket ([Server.Start]), with the same status, headers and body
// to the byte. In process it opens no socket and starts no goroutine, so that
// a client, the protocol and the engine all run in one testing/synctest bubble.
//
// # Protocol
//
// Addresses are path-style, /account/queue/messages/id, as of Azurite.
// Operations, limits, status and error codes are those Microsoft documents;
// where Azurite is laxer the documents win: an update's visibility may not pass
// the message's expiry, a dropped queue's name stays taken for a while, x-ms-date
// must be within 15 minutes, and each message of a batch has its own receipt.
// Service properties, stored access policies and shared access signatures are
// not served yet.
//
// Names of metadata come back in lower case: HTTP does not keep their case.
//
// # Delivery and cost
//
// Delivery is that of the engine. Every request is one transaction; [Server.Counts]
// tells how many of which kind, with empty dequeues told from others.
//
// # Security
//
// Requests are signed with Shared Key and refused otherwise. The development
// account's key is public, so [Server.Start] listens on loopback addresses
// only. No key, signature, receipt or text is ever in an error or a log.
//
// # Concurrency and shutdown
//
// Everything is safe for concurrent use. [Endpoint.Close] and
// [Endpoint.Shutdown] return when the goroutines of the endpoint have ended.
package emulator
