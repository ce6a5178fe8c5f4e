// Package openfile holds calls of the operating system that stores of files share: it locks open
// files, finds out whether they were deleted, makes durable directories, and tells a full disk from
// a failing one. All functions are safe for concurrent use. Only [MakeDirectory]
// and [SyncDirectory] wait, for the disk.
package openfile
