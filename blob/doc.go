// Package blob stores data that is too large for a message: a [Store] keeps streams of bytes
// under a [Ref], and the message carries that reference as a URI. [Memory] and [Dir] are stores;
// both pass the same conformance tests.
//
// # Consistency
//
// Every later call sees a blob that was put, and a reader never sees part of one:
// [Store.Put] and [Store.Create] take effect completely or not at all. A reader of a blob
// that is replaced or deleted meanwhile reads the old content to its end. Of any number of
// concurrent creates of one reference exactly one succeeds, across processes too, so that a
// step that runs twice takes effect once.
//
// # Names
//
// References use only characters that are valid in Azure Blob Storage, every file system and a
// URI: nothing in them needs escaping, and no two differ only in case.
//
// # Concurrency
//
// A store is safe for concurrent use. Nothing here starts a goroutine.
//
// # Cost
//
// One method call is one request to a cloud store, except for a list, which takes one for
// every 5,000 references.
package blob
