// Package aztable implements [table.Store] on Azure Tables, the table service of a storage account, with the SDK
// package aztables. Azure Cosmos DB, which has the same protocol, is not supported.
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # Consistency
//
// Versions are the service's ETags, which it compares. A change of one entity and a group of changes take effect
// completely or not at all; a group is one entity group transaction, whose request may have 4 MiB, with bytes in Base64
// and some 500 bytes for each change: a larger one fails with [table.ErrTooLarge]. Every later call sees them. The service orders
// entities and compares text by UTF-16, which differs from [table.Key.Compare] for characters beyond U+FFFF alone.
//
// The first insertion creates a table that does not exist. Until then, entities are missing and pages are empty. A
// table that is being deleted, which takes the service 40 s and more, fails with [table.ErrUnavailable].
//
// # Queries
//
// The service ends a page at 1,000 entities, at 4 MiB, after 5 s and where its own partitions of the table end, so that
// a page may be empty and have a token. A [table.Token] carries the service's place of the next page, whatever it is,
// and a checksum of the query: a token that was changed or is of another query or table fails with
// [table.ErrInvalid], and nothing is sent.
//
// # Errors and repeats
//
// Every error is a [*table.Error] on one line, with the HTTP status, the storage error code and the request id, and
// without a key or a signature. [errors.As] finds the SDK's *azcore.ResponseError in it. The error of a group names the
// entity whose change failed.
//
// Reads that fail for a while are repeated for [Options.RetryFor], with growing waits; the SDK's own repeats are off. A
// change is repeated only if it certainly had no effect: it could not be sent, or the service was too busy for it or is
// deleting the table. One whose response is lost fails with [table.ErrUnavailable] after one request, because a
// conditional change that took effect would fail when repeated. [table.Modify] does not repeat it either. A 404 counts
// as [table.ErrMissing] only if the service says so, and a page of a proxy is never an entity.
//
// # Concurrency
//
// A [Table] is safe for concurrent use. It has no goroutine of its own. [Table.Close] closes idle connections.
//
// # Cost
//
// One call is one request, and the service bills one transaction for it: a group of 100 changes is one, and so is a
// query, whatever number of entities its page has. The first insertion into a table that does not exist is three. A page
// of 4 MiB is in memory about three times while it is read.
//
// # Time
//
// Time is read from package time alone, so that with an in-process [Options.Transport] a Table runs in a
// testing/synctest bubble. Times of modification are the service's.
package aztable
