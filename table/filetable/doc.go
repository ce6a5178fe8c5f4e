// Package filetable keeps tables in one file, for programs on one machine that need no server. A [DB] is the file; its
// tables are stores as package table describes them.
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # Durability
//
// A change that was confirmed is on disk: a kill or a power cut does not undo it, provided that the disk keeps what it
// reports as written. A change whose call has not returned may or may not have taken effect, a group of changes
// completely or not at all. The file is a tree of bbolt: a commit writes changed pages to free places, the new root, and
// a checksum of both, and waits for the disk. An interrupted one leaves the commit before.
//
// Versions of entities are numbered through all tables of a file, and the number is part of each commit, so that no
// ETag ever comes a second time: neither after a deletion nor after a restart.
//
// # Concurrency
//
// Stores and the DB are safe for concurrent use. One goroutine commits. Changes that arrive while it does share the
// next commit; a change that comes alone does not wait for others. Each is checked against what it finds then, the
// changes before it in the same commit included, and fails alone. Readers read the last commit, as it
// was when they began. They never wait for a commit, except for the moment in which the mapping of the file into memory
// grows.
//
// One process has a file open: others fail with [ErrLocked]. The kernel releases the file when the process ends,
// however it ends. Locks do not work across machines on every network file system: use a local one.
//
// # Shutdown
//
// [DB.Close] waits for the commit and the reads under way. Calls that come later, and changes that no commit has
// taken, fail with [ErrClosed] and have no effect. A program that ends without Close loses nothing that was confirmed.
//
// # Damage and a full disk
//
// Open reads every page of the file and checks that it is a sound tree; otherwise it fails with [ErrCorrupt] and changes
// nothing. Every entity has a checksum: one that is damaged fails its readers with [ErrCorrupt], and the others are
// available; deleting it or replacing it with [table.Any] repairs the table.
//
// Damage of the last commit is told from an interruption by a mark, which is written after the commit was confirmed. The
// disk has it after the next commit, after Close, or when the system writes it, by default within half a minute. With the
// mark, a commit whose root or pages are damaged is refused with [ErrCorrupt]. Without it, the file is as it was one
// commit earlier, and no error says so. That takes two faults: a power cut shortly after the last commit, and damage of
// what this commit has written. Kills of the process do not count: the system still has the mark.
//
// If the file changes while it is open, or was deleted, calls fail; if the disk also fails to write a commit then, the
// process may end as if it were killed. If the disk fails so that a commit may be lost, all further changes are refused
// until the file is opened again.
//
// On a full disk changes that make a table grow fail with [table.ErrUnavailable] and change nothing. Deletions, and
// updates that add little, go on: 4 MiB of the file are kept free for them.
//
// # Cost
//
// A commit waits for the disk once, or twice if it changes more than 256 pages or 8 MiB; once in a MiB or more it also
// waits for space that the file grows by. A change of one small entity writes a page for each level of the tree, of 4 KiB
// on most machines, and the root. A point read takes O(log n), a page what its entities take. Open takes O(n): some
// seconds for a million small entities at most. Memory holds a page of entities for each reader and the changes of a
// commit; the file is mapped, so the system shows the parts that were read as memory of the process until it needs it.
// The smallest file has 5 MiB. The file does not shrink: space of deleted entities is used again.
//
// # Versions of the format
//
// Open brings files of format 1 to format 2, which earlier releases refuse. A power cut in between loses nothing. To go
// back to an earlier release, copy the file before.
package filetable
