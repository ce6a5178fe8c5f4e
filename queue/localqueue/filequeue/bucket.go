package filequeue

import bolt "go.etcd.io/bbolt"

// bucket is the name of a bucket of the file, a tree of its own.
type bucket []byte

var (
	metaBucket       = bucket("store")    // secret, ordinal, tally, folded
	accountBucket    = bucket("accounts") // name → settings
	queueBucket      = bucket("queues")   // ordinal → everything but messages
	nameBucket       = bucket("names")    // ordinal → name; and a copy of the secret
	deletingBucket   = bucket("leaving")  // name → when it is free again
	tombstoneBucket  = bucket("sweeps")   // ordinal, sequence: what a clear or a drop left to remove
	headBucket       = bucket("heads")    // ordinal, sequence → due, dequeues, receipt
	bodyBucket       = bucket("bodies")   // ordinal, sequence → the message as it was enqueued or rewritten
	quarantineBucket = bucket("aside")    // bucket, key → a record that was found damaged
)

// buckets is all of them, those that say what the others mean first.
var buckets = []bucket{metaBucket, accountBucket, nameBucket, queueBucket, deletingBucket, tombstoneBucket, headBucket, bodyBucket, quarantineBucket}

// tallied is a bucket whose records are counted.
type bucketWriter struct {
	*bolt.Bucket
	set *recordSet // nil when they are not
}

// Put puts a record in place of the one that is there.
func (t bucketWriter) Put(key, record []byte) error {
	if t.set != nil {
		if was := t.Get(key); was != nil {
			t.set.remove(key, was)
		}
		t.set.add(key, record)
	}
	return t.Bucket.Put(key, record)
}

// Delete takes a record away, if it is there.
func (t bucketWriter) Delete(key []byte) error {
	c := t.Cursor()
	found, was := c.Seek(key)
	if string(found) != string(key) {
		return nil
	}
	if t.set != nil {
		t.set.remove(key, was)
	}
	return c.Delete()
}
