// Package table stores entities: small sets of properties under a key, with a version. A [Store] is one table.
// [Memory] is a store, and so are the tables of a file, in package filetable, and of Azure Tables, in package
// aztable. All pass one conformance suite, package tabletest.
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # Consistency
//
// A change of one entity takes effect completely or not at all, and every later call sees it. So does a group of
// changes in one partition, which [Store.Apply] makes. Nothing holds several partitions or tables together: a program
// that changes several makes its steps repeatable, and keeps what it intends where it survives, such as in a message.
//
// Every entity has a version, its [ETag]. A change names the version that it was made for and fails with
// [ErrPreconditionFailed] if there is another one meanwhile, so that no writer undoes what it has not seen. [Modify]
// reads, changes and writes an entity until no other writer comes in between. [Any] changes whatever version there is.
//
// # Queries
//
// A query returns a page of entities and a [Token] for the next page. A page of one partition is a snapshot: it has all
// of a group of changes or nothing of it. Several pages are not one snapshot, and a program that stops between two
// holds up no writer. A page may have fewer entities than asked for, and even none, while there are more behind it:
// only a page without a token is the last one. [All] reads page after page.
//
// # Errors
//
// No store repeats a change that got no answer, because a change under an ETag that took effect would then seem to have
// failed. It fails with [ErrUnavailable], and the caller, who knows whether the change may be made twice, reads or
// repeats.
//
// # Contexts
//
// A call with a context that has ended checks its arguments, sends nothing, and changes nothing. If
// the context ends during a call, the call ends early, and a change has taken effect completely or
// not at all. Both errors match the context's error, which is [context.Canceled] or
// [context.DeadlineExceeded], and its cause, see [context.Cause].
//
// # Concurrency
//
// A store is safe for concurrent use. Nothing here starts a goroutine.
//
// # Cost
//
// One method call is one request to a cloud store; [Modify] makes two for each attempt. [Memory] copies what it is
// given and what it returns; an insertion into a partition, and a deletion that is not at its beginning, take time in
// proportion to the entities behind it.
package table
