// Package azureblob implements [blob.Store] on Azure Blob Storage with the SDK package azblob.
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # Atomicity
//
// A blob of at most [Options.BlockSize] is put by one request. A larger one is uploaded in
// blocks, one after the other, which nobody sees until the last request commits them with the
// metadata. Create asks the service to refuse a blob that exists, so that of any number of
// concurrent creates exactly one succeeds.
//
// Concurrent puts of one reference all succeed, and one of them is what stays. The service drops
// the blocks of an upload when another commits the same blob; then the upload that lost them
// counts as having been replaced at once.
//
// # Resuming
//
// The id of a block is made of its position and the SHA-256 of its content. An upload first asks
// which blocks the service has and sends the others only. So a put that broke off, in this
// process or another, is continued when the same content is put with the same BlockSize, within
// the week that the service keeps blocks. A request that fails is repeated, block by block.
//
// A reader whose connection breaks continues from the next byte, on condition that the blob is
// still the same.
//
// # Consistency
//
// Every later call sees a blob that was put. The service does not keep the old content of a blob
// that is replaced or deleted: a reader that needs another request then fails with
// [blob.ErrChanged]. A container that does not exist is created by the first put.
//
// Blobs of other programs whose names no [blob.Ref] can have are not listed.
//
// # Cost
//
// Without faults: put, create, open, stat and delete are one request each. A put of n blocks is
// n + 2, one more if it is resumed, and a create of n blocks n + 3. A list is one for every
// 5,000 blobs, or for fewer if the service returns shorter pages; Public is one and SetPublic two.
// A put keeps one block in memory, an open nothing beyond the buffers of the connection.
//
// # Errors and retries
//
// Every error is a [*blob.Error] on one line, with the HTTP status, the storage error code and
// the request id, and without a key or a signature. [errors.As] finds the SDK's
// *azcore.ResponseError in it. Requests that fail for a while are repeated for
// [Options.RetryFor], with growing waits; the SDK's own retries are off. A create whose response
// is lost is recognized when it is repeated, by a token in the blob's metadata. A 404 counts as
// [blob.ErrMissing] only if the service says so, and a page of a proxy is never a blob.
//
// # Concurrency
//
// A [Store] is safe for concurrent use. It has no goroutine of its own. [Store.Close] closes idle
// connections.
//
// # Time
//
// Time is read from package time alone, so that with an in-process [Options.Transport] a Store
// runs in a testing/synctest bubble. Times of modification are the service's, in whole seconds.
package azureblob
