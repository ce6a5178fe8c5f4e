// Package boltfile reads files of bbolt's format without bbolt, and checks every bound. bbolt trusts its pages: with a
// damaged one it reads outside its memory or loops, in a goroutine of its own, where a panic cannot be recovered. So a
// file that may be damaged is read with this package first, and bbolt gets it only if it is sound.
//
// A [Reader] reads one commit: [Reader.Buckets] reads its root, [Reader.Walk] visits the entries of a bucket, and
// [Reader.CheckFreelist] checks the list of free pages. A commit without damage is one that bbolt can read and change:
// each page is where its tree says, is used once and lies within the file, and the keys are in order within the bounds
// that the pages above give them. Whether the values are those that somebody wrote is for the caller to check, because
// bbolt's pages have no checksums; only its meta pages do.
//
// [Changed] visits what one commit has written, by comparison with the commit before.
//
// The caller decides what damage means: a walk can end with the first of it or go on with the next page. What no tree
// leads to any more, [Reader.Scan] finds.
//
// Whatever the file has, nothing here panics or loops. Memory is a bit for each page in use and one page for each level
// of a tree, of at most 8 MiB. The file is read once for each walk; nothing is written or locked.
//
// The format is bbolt's version 2, in the byte order of the machine. Buckets within buckets are entries, which a walk
// does not enter.
package boltfile
