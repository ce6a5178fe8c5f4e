// Package filequeue keeps the queues of an embedded engine in a directory, so that
// they outlive the process. Hand a [Store] to [localqueue.Open].
//
// # Durability
//
// What the engine has answered has reached the disk: nothing that was answered is
// lost to a kill or a power cut, and nothing that was deleted comes back, as long
// as the disk keeps what it says that it has written. A call that was not answered
// may have happened or not. Calls that are under way together share one wait for
// the disk.
//
// A commit of what every message makes is a record in a log: one write and one wait for
// the disk, whatever it changes. The write ends with an end mark, which the next record is
// written over. When the log is full, a mebibyte, or has touched many
// messages, it is folded into a tree, the file queues.db, whose pages are never
// overwritten while a commit still needs them: one that was cut short leaves the one
// before. What is rare, such as a new queue, goes into the tree at once. There are two
// logs in turn, so that the log of the commit before is there as long as its tree. After a
// close the tree has everything, and there are none.
//
// # Damage
//
// Open reads the tree and the logs whole. Every record has a checksum of its own, a tally
// tells whether the records of the tree are those of its newest commit, and the commits of a
// log are numbered: one that is missing is damage, and those after it are kept. Where a log
// should end stands an end mark, or the beginning of a commit that was cut short, which is
// [Found.Torn]: nobody can tell that from some kinds of damage, so what it had may have been
// acknowledged. Anything else there is damage. A record that is damaged is set aside inside the
// file and the others are served. If pages are damaged the file is kept as it was, beside,
// and what could be read is written into a new one: of the newest commit, else of the one
// before, else of every page there is, and then messages that were deleted may be back.
// [Store.Found] lists what was wrong: print it. A file that cannot be used at all is
// [ErrCorrupt] and is left alone. A message that turns out to be
// damaged later is set aside when it is dequeued, and the caller is told.
//
// A page of the tree that cannot be read any more while the engine runs, or is not what it
// was, fails the call that needs it. After a commit failed so, or the disk turned out not to
// have what it said that it has written, nothing is committed any more: close the store and
// open it again, which mends what can be mended. Only if the disk fails to write a commit to
// the tree, too, the process may end, as if it were killed.
//
// # The directory
//
// A store holds the directory open, and goes on in it when it is renamed; another store may
// then begin under the old name. If its files are deleted, no commit is acknowledged from a
// second later on, and errors say why. A store removes no file that it did not make.
//
// A directory of an earlier version is read if it was closed in order, and refused if it
// was not.
//
// # A full disk
//
// A call that needs space fails with [queue.ErrUnavailable] and changes nothing. Before that
// the log is folded, so that all that deletes made free counts. Six mebibytes are kept in a file of their own and let go then, so that deletes go
// on, which make the room, unless another program takes it; enqueues are tried again after
// a second. Dequeues of very many messages that nobody deletes use that room up, and then
// fail too. If the disk fails at the very end of a commit, the caller gets
// [queue.ErrOutcomeUnknown] and nothing is written any more until the directory is opened
// again.
//
// # Cost
//
// A commit takes O(1) for each change, and folding it O(log n), at any depth and after any
// drain: a message that comes and goes between two folds never reaches the tree. Open
// takes O(n). The texts stay on the disk: memory holds some 250 bytes for a message
// and for a while, after Open, as much again. The file does not shrink while it is
// open; one that is mostly empty is made anew when it is opened, which takes as much
// space as is left in it.
//
// # Concurrency
//
// One process has a directory, and one Store: others are refused with [ErrLocked].
// The kernel ends that with the process, however it ends. Locks do not reach across
// machines on every network file system: use a local one. A Store starts no
// goroutine, and is closed by the engine over it.
package filequeue
