package filequeue

import bolt "go.etcd.io/bbolt"

// bucket is the name of a bucket of the file: a tree of its own. The names are part of the
// format.
type bucket []byte

var (
	metaBucket       = bucket("store")    // secret, ordinal, digest, checkpoint, commit
	accountBucket    = bucket("accounts") // name → service properties
	queueBucket      = bucket("queues")   // ordinal → everything except messages
	nameBucket       = bucket("names")    // ordinal → name; and a copy of the secret
	deletingBucket   = bucket("leaving")  // name of a dropped queue → when it is free
	tombstoneBucket  = bucket("sweeps")   // ordinal, sequence: messages up to there are deleted
	headBucket       = bucket("heads")    // ordinal, sequence → due, dequeues, receipt
	bodyBucket       = bucket("bodies")   // ordinal, sequence → the message as it was enqueued or rewritten
	quarantineBucket = bucket("aside")    // bucket, key → a damaged record
)

// buckets is all of them, in the order in which they are read: settings before messages.
var buckets = []bucket{metaBucket, accountBucket, nameBucket, queueBucket, deletingBucket, tombstoneBucket, headBucket, bodyBucket, quarantineBucket}

// bucketWriter writes to a bucket and updates its digest.
type bucketWriter struct {
	*bolt.Bucket
	set *recordSet // nil for the bucket that has the digests
}

// Put writes a record, in place of any that is there.
func (t bucketWriter) Put(key, record []byte) error {
	if t.set != nil {
		if was := t.Get(key); was != nil {
			t.set.remove(key, was)
		}
		t.set.add(key, record)
	}
	return t.Bucket.Put(key, record)
}

// Delete removes a record, if it is there.
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
