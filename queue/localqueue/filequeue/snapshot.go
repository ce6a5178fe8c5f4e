package filequeue

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// census is what a file holds, read before bbolt is: everything but texts, which
// are only checked.
type snapshot struct {
	found      Found
	secret     [32]byte
	secretCopy [32]byte // the secret's copy
	metaValues
	accounts   []localqueue.AccountState
	queues     map[uint64]localqueue.QueueState
	names      map[uint64]queue.Name
	deleting   []localqueue.DeletingName
	tombstones map[uint64]uint64 // queue to sequence
	heads      []localqueue.MessageState
	messages   []localqueue.MessageState
	actual     digest // what the bodies are
	damaged    []damagedRecord
	orphans    map[uint64]int // messages by a queue that is not known
	unreadable bool           // pages could not be read
	newer      bool           // a record is of a later version
	freeShare  float64        // what part of the pages is free
	rebuilt    bool           // the file was made anew
	scanned    bool           // there are records of many commits, not of one tree
}

// singleValues are what the bucket of that name holds.
type metaValues struct {
	ordinal    uint64
	digest     digest
	hasDigest  bool
	countsOnly bool // the tally only counts messages
	checkpoint checkpoint
	commit     uint64 // of the tree; 0 when an earlier version wrote it
}

// kept is a record and where it is to be kept.
type bucketRecord struct {
	bucket      bucket
	key, record []byte
}

// badRecord is a record that is to be set aside.
type damagedRecord struct {
	bucketRecord
	reason string
}

// newCensus is that of no file.
func newSnapshot() *snapshot {
	return &snapshot{
		queues:     map[uint64]localqueue.QueueState{},
		names:      map[uint64]queue.Name{},
		tombstones: map[uint64]uint64{},
		orphans:    map[uint64]int{},
	}
}

// takeCensus reads the census of a file.
func readSnapshot(f *os.File) (*snapshot, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	in, whole, err := inspect(f, info.Size())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	c := newSnapshot()
	if !whole {
		c.found.damage(Damage{What: "one of the two meta pages cannot be read: the newest commit may have been torn, the one before it is used"})
	}
	if !consecutive(in.meta, in.previous) {
		c.unreadable = true
		c.found.damage(Damage{What: "the two meta pages are not those of one commit and of the one before: the newest commit may be lost"})
	}
	c.visitRecords(in, c.addRecord)
	if c.newer {
		return nil, ErrNewer
	}
	if c.checkpoint.logs == oldLogs {
		return nil, errOldLogs
	}
	if c.scanned {
		c.checkpoint = checkpoint{time: c.checkpoint.time} // it may be of any commit: all that is in the logs is taken
	}
	if c.commit != 0 && c.commit != in.meta.commit && !c.scanned {
		c.found.damage(Damage{What: fmt.Sprintf("the tree is that of commit %d and should be that of commit %d: what came in between is lost, or was deleted and is back", c.commit, in.meta.commit)})
	}
	c.freeShare = 1 - float64(in.used+2)/float64(max(in.meta.high, 1))
	c.reconcile()
	return c, nil
}

// visit visits all records of the newest tree whose root can be read; if there is none,
// all that are on any page.
func (c *snapshot) visitRecords(in *inspector, visit func(in bucket, key, value []byte)) {
	in.damaged = func(page uint64, why error) {
		c.unreadable = true
		c.found.damage(Damage{What: fmt.Sprintf("a page cannot be read: %v", why)})
	}
	trees, err := in.bucketRoots()
	if err != nil {
		c.unreadable = true
		c.found.damage(Damage{What: fmt.Sprintf("the newest commit cannot be read: %v", err)})
		if in.fallBack() {
			trees, err = in.bucketRoots()
		}
	}
	if err != nil {
		c.found.damage(Damage{What: "no commit can be read as a whole: every page was searched for messages, and some that were deleted may be back"})
		c.scanned = true
		in.scan(visit)
		return
	}
	if in.meta.high > uint64(in.size)/uint64(in.meta.pageSize) {
		c.unreadable = true
		c.found.damage(Damage{What: "the file is shorter than it was"})
	}
	if in.meta.free != noFreelist { // bbolt would believe it, and no store writes one
		c.unreadable = true
		c.found.damage(Damage{What: "there is a list of free pages, which another program must have written"})
	}
	for _, name := range buckets {
		i := slices.IndexFunc(trees, func(t bucketRoot) bool { return bytes.Equal(t.name, name) })
		if i < 0 {
			c.unreadable = true
			c.found.damage(Damage{What: fmt.Sprintf("the bucket %q is missing", name)})
			continue
		}
		in.bucket(trees[i], func(key, value []byte) { visit(name, key, value) })
		trees = slices.Delete(trees, i, i+1)
	}
	for _, t := range trees { // bbolt would read them too
		in.bucket(t, func([]byte, []byte) {})
	}
}

// record takes one record, or remembers that it is bad.
func (c *snapshot) addRecord(in bucket, key, value []byte) {
	err := c.parseRecord(in, key, value)
	switch {
	case err == nil:
	case errors.Is(err, ErrNewer):
		c.newer = true
	default:
		c.damaged = append(c.damaged, damagedRecord{bucketRecord{in, slices.Clone(key), slices.Clone(value)}, err.Error()})
	}
	if d := c.actual.of(in); d != nil {
		d.add(key, value) // bad ones too: they are counted as they were written
	}
}

func (b bucket) is(other bucket) bool { return bytes.Equal(b, other) }

func (c *snapshot) parseRecord(in bucket, key, value []byte) error {
	switch {
	case in.is(bodyBucket):
		m, text, err := readBody(key, value)
		if err == nil {
			c.messages = append(c.messages, m)
			c.found.Bytes += int64(len(text))
		}
		return err
	case in.is(headBucket):
		m, err := readHead(key, value)
		if err == nil {
			c.heads = append(c.heads, m)
		}
		return err
	case in.is(queueBucket):
		q, err := readQueue(key, value)
		if err == nil {
			c.queues[q.Ordinal] = q
		}
		return err
	case in.is(nameBucket):
		return c.readNames(key, value)
	case in.is(accountBucket):
		a, err := readAccount(key, value)
		if err == nil {
			c.accounts = append(c.accounts, a)
		}
		return err
	case in.is(deletingBucket):
		l, err := readDeleting(key, value)
		if err == nil {
			c.deleting = append(c.deleting, l)
		}
		return err
	case in.is(tombstoneBucket):
		k, err := readTombstone(key, value)
		if err == nil {
			c.tombstones[k.Queue] = max(c.tombstones[k.Queue], k.Sequence)
		}
		return err
	case in.is(metaBucket):
		return c.readMeta(key, value)
	default: // set aside before
		c.found.Quarantined++
		return nil
	}
}

func (c *snapshot) readNames(key, value []byte) (err error) {
	if bytes.Equal(key, keySecret) {
		c.secretCopy, err = readSecret(nameBucket, value)
		return err
	}
	ordinal, name, err := readName(key, value)
	if err == nil {
		c.names[ordinal] = name
	}
	return err
}

func (c *snapshot) readMeta(key, value []byte) (err error) {
	switch {
	case bytes.Equal(key, keySecret):
		c.secret, err = readSecret(metaBucket, value)
	case bytes.Equal(key, keyOrdinal):
		err = readMetaRecord(key, value, &c.ordinal)
	case bytes.Equal(key, keyDigest):
		c.digest, c.countsOnly, err = readDigest(value)
		c.hasDigest = c.hasDigest || err == nil
	case bytes.Equal(key, keyCommit):
		err = readMetaRecord(key, value, &c.commit)
	case bytes.Equal(key, keyCheckpoint):
		c.checkpoint, err = readCheckpoint(value)
	default:
		err = errRecord
	}
	return err
}

// saved hands the census to the engine, which then is the only one to have it.
func (c *snapshot) saved() localqueue.Saved {
	return localqueue.Saved{
		Secret:   c.secret,
		Ordinal:  c.ordinal,
		Accounts: c.accounts,
		Queues:   slices.Collect(maps.Values(c.queues)),
		Deleting: c.deleting,
		Messages: slices.Values(c.messages),
	}
}
