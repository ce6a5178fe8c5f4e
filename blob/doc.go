// Package blob is a place for what is too large for a message: a [Store] keeps
// streams of bytes under a [Ref], and the message carries that reference as a
// URI. [Memory] and [Dir] are stores; both pass one conformance test, as a cloud
// store will.
//
// # Consistency
//
// What was put is seen by every later call, and a reader never sees half a blob:
// [Store.Put] and [Store.Create] take effect as a whole or not at all. A blob
// that is replaced or deleted while somebody reads it is read to its old end.
// Of any number of concurrent creates of one reference exactly one succeeds,
// across processes too; that is what makes a step that runs twice take effect
// once.
//
// # Names
//
// References are the common ground of Azure Blob Storage, every file system and
// a URI: nothing in them needs escaping, and none differ only in case.
//
// # Concurrency
//
// A store is safe for concurrent use. Nothing here starts a goroutine.
//
// # Cost
//
// One method call is one request of a cloud store, but for a list, which is one
// for every 5,000 references.
package blob
