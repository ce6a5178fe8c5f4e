// Package filequeue keeps the queues of an embedded engine, package localqueue, in a directory, so that
// they survive the process.
//
// This package is stable: see docs/stability.md.
//
// # Durability
//
// Every change that the engine has acknowledged is on disk: a kill or a power cut loses no
// acknowledged change and restores no deleted message, provided that the disk keeps what it
// reports as written. A call that has not returned may or may not have taken effect. Concurrent
// calls share one wait for the disk.
//
// A commit of ordinary changes is one record in a write-ahead log: one write and one wait
// for the disk, whatever it changes. The same write ends with an end mark, which the next
// record overwrites. When the log is full, at a mebibyte, or has changed many messages, a
// checkpoint writes it into a tree, the file queues.db. The tree never overwrites a page that a
// commit still needs: an interrupted commit leaves the previous one. Rare changes, such as a
// new queue, go into the tree at once. Two logs alternate, so that the log before a checkpoint
// is kept until the next. After Close the tree has everything, and there are no logs.
//
// # Damage
//
// Open reads the tree and the logs completely. Every record has its own checksum, a digest
// shows whether the records of the tree are those of its newest commit, and the commits of
// a log are numbered: a missing one is damage, and those after it are kept. A log ends with
// an end mark, or with the beginning of an interrupted commit, which is [Found.Torn]: some
// kinds of damage look the same, so the missing commit may have been acknowledged. Anything
// else at the end is damage. A damaged record is quarantined inside the file, and the
// others are available. If pages are damaged, the file is kept as a copy, and a new file is
// made of what can be read: the newest commit, else the previous one, else the records of all
// pages, which may include deleted messages. [Engine.Found] lists the damage: print it. A file
// that cannot be used at all is [ErrCorrupt] and is not changed. A message that turns out
// to be damaged later is quarantined when it is dequeued, and the caller gets an error.
//
// If a page of the tree becomes unreadable or changes while the engine runs, the call that
// needs it fails. If that call is a commit, or the disk turns out to have lost a
// write, the store refuses all further commits: close it and open it again, which repairs
// what can be repaired. If, besides, the disk fails to write a commit to the tree, the
// process may end as if it were killed.
//
// # The directory
//
// A store holds the directory open and keeps using it when it is renamed; another store may
// then use the old name. If its files are deleted, no commit is acknowledged after a second
// at most, and errors say why. A store removes no file that it did not create.
//
// Every release reads the directories of the release before it, even after a kill, and
// refuses those of later ones with [ErrNewer]. After Close, the release before it can read a
// directory too.
//
// # A full disk
//
// A call that needs space fails with [queue.ErrUnavailable] and changes nothing. Before
// that, a checkpoint makes the space of deleted messages available. Six mebibytes are
// reserved in a file of their own and released when the disk is full, so that deletes,
// which free space, can go on, unless another program takes the space. Enqueues are tried
// again after a second. Very many dequeues without deletes use up the reserve too, and then
// fail. If the disk fails at the very end of a commit, the caller gets
// [queue.ErrOutcomeUnknown], and the store refuses all further commits until it is opened
// again.
//
// # Cost
//
// A commit takes O(1) for each change, and a checkpoint O(log n), at any depth and after
// any drain: a message that is added and deleted between two checkpoints never reaches the
// tree. Open takes O(n). Texts stay on disk: memory holds some 250 bytes for each message
// and, for a while after Open, as much again.
//
// The file does not shrink while it is open: the space of deleted messages is used again. Open
// rebuilds a file of 64 MiB or more if three quarters of it are free, also right after a clear
// whose process was killed. That takes space for the contents; without it, the file stays.
//
// # Concurrency
//
// One process has a directory, and in it one [Engine]: others fail with [ErrLocked]. The
// kernel releases the lock when the process ends, however it ends. Locks do not work across
// machines on every network file system: use a local one.
package filequeue
