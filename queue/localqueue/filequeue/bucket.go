package filequeue

// bucket is the name of a bucket of the file, a tree of its own.
type bucket []byte

var (
	singles  = bucket("store")    // secret, ordinal, tally, folded
	accounts = bucket("accounts") // name → settings
	queues   = bucket("queues")   // ordinal → everything but messages
	names    = bucket("names")    // ordinal → name; and a copy of the secret
	leaving  = bucket("leaving")  // name → when it is free again
	sweeps   = bucket("sweeps")   // ordinal, sequence: what a clear or a drop left to remove
	heads    = bucket("heads")    // ordinal, sequence → due, dequeues, receipt
	bodies   = bucket("bodies")   // ordinal, sequence → the message as it was enqueued or rewritten
	aside    = bucket("aside")    // bucket, key → a record that was found damaged
)

// buckets is all of them, those that say what the others mean first.
var buckets = []bucket{singles, accounts, names, queues, leaving, sweeps, heads, bodies, aside}
