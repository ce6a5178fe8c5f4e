// Package blob stores data that is too large for a message: a [Store] keeps streams of bytes
// under a [Ref], and the message carries that reference as a URI. [Memory] and [Open] are
// stores, and so is Azure Blob Storage, in package azureblob. All pass one conformance suite,
// package blobtest. Package stores opens a directory or an account by one setting.
//
// This package is stable: see docs/stability.md.
//
// # Consistency
//
// Every later call sees a blob that was put, and a reader never sees part of one:
// [Store.Put] and [Store.Create] take effect completely, with the metadata, or not at all. A
// reader of a blob that is replaced or deleted meanwhile reads the old content to its end, or
// fails with [ErrChanged] where the store does not keep it, as Azure does not. Of any number of
// concurrent creates of one reference exactly one succeeds, across processes too, so that a
// step that runs twice takes effect once.
//
// A container exists as soon as something is put into it, and one that does not exist has no blobs.
//
// # Metadata and access
//
// A blob carries metadata, small texts by name, which [Store.Open], [Store.Stat] and
// [Store.List] tell with its size and the time at which it was put. [Info.Age] compares that time
// with the store's clock. A [Manager] makes containers public.
//
// # Names
//
// References use only characters that are valid in Azure Blob Storage, every file system and a
// URI: nothing in them needs escaping, and no two differ only in case.
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
// One method call is one request to a cloud store, except for a list, which takes one for
// every 5,000 blobs, and for a put of more than a block.
package blob
