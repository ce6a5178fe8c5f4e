// Package zstdcodec compresses bodies with Zstandard (RFC 8878), as a codec around a codec.
//
// The body is binary: a message carries it in Base64, which makes it a third larger, unless it is
// stored elsewhere. Small bodies, and those that would not become smaller in Base64, stay as the
// inner codec encoded them. So do messages that were sent before a program began to compress:
// both kinds are read. A body of the inner codec that itself begins as a Zstandard frame does is
// compressed whatever its size.
//
// What a body unpacks to is bounded, so that a small message cannot fill the memory.
//
// A codec is safe for concurrent use and starts no goroutine.
//
// This package is experimental: any release may change it. See docs/stability.md.
package zstdcodec
