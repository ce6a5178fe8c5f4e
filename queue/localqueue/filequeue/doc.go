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
// the disk, whatever it changes. When the log is full, a mebibyte, or has touched many
// messages, it is folded into a tree, the file queues.db, whose pages are never
// overwritten while a commit still needs them: one that was cut short leaves the one
// before. What is rare, such as a new queue, goes into the tree at once. There are two
// logs in turn, so that the log of the commit before is there as long as its tree. After a
// close the tree has everything, and there are none.
//
// # Damage
//
// Open reads the tree and the logs whole. Every record has a checksum of its own, a tally
// tells whether there are as many messages as there should be, and the commits of a log
// are numbered: a last one that was cut short is [Found.Torn], one that is missing is
// damage, and those after it are kept. A record that is damaged is set aside inside the
// file and the others are served. If pages are damaged the file is kept as it was, beside,
// and what could be read is written into a new one: of the newest commit, else of the one
// before, else of every page there is, and then messages that were deleted may be back.
// [Store.Found] lists what was wrong: print it. A file that cannot be used at all is
// [ErrCorrupt] and is left alone. A message that turns out to be
// damaged later is set aside when it is dequeued, and the caller is told.
//
// A disk that fails to read a page while the engine runs ends the process: the file
// is mapped into memory, where the system has no other way to say so.
//
// # A full disk
//
// A call that needs space fails with [queue.ErrUnavailable] and changes nothing.
// Six mebibytes are kept in a file of their own and let go then, so that deletes go
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
