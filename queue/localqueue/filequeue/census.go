package filequeue

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math"
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

// unknownGap is how far a counter that was lost goes on beyond what is known to
// have been given out.
const unknownGap = 1 << 40

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

// settle puts together what was read: heads with bodies, messages with queues,
// copies in place of what was lost.
func (c *snapshot) reconcile() {
	c.reconcileQueues()
	for _, b := range c.damaged {
		c.found.damage(c.describe(b))
	}
	c.compareDigests()
	c.reconcileMessages()
	for ordinal, n := range c.orphans {
		c.found.damage(Damage{What: fmt.Sprintf("%d messages are of the queue with the ordinal %d, which is not known: they were set aside", n, ordinal)})
	}
	c.found.Queues, c.found.Messages = len(c.queues), len(c.messages)
	if c.secret == ([32]byte{}) {
		c.secret = c.secretCopy
		if c.secret == ([32]byte{}) && (len(c.queues) > 0 || c.ordinal > 0) {
			_, _ = rand.Read(c.secret[:]) // which never fails
			c.found.damage(Damage{What: "the secret that ids and receipts are made of is lost: messages have other ids now, no receipt from before is good, and what only a log had is lost"})
		}
	}
}

// compareTallies finds out whether the records are those of the newest commit.
func (c *snapshot) compareDigests() {
	have, want := c.actual.bodies, c.digest.bodies
	if c.countsOnly {
		have.sum = want.sum
	}
	if have != want {
		c.found.damage(Damage{What: fmt.Sprintf("there should be %d messages in the file and there are %d: some are lost, or were deleted and are back, or are as they were before", want.count, have.count)})
	}
	have, want = c.actual.others, c.digest.others
	if have != want && !c.countsOnly {
		c.found.damage(Damage{What: fmt.Sprintf("there should be %d records besides the messages in the file and there are %d: some queues, their settings, or when messages are due are lost, or are as they were before", want.count, have.count)})
	}
}

// settleQueues brings queues back of which only the name is left.
func (c *snapshot) reconcileQueues() {
	if c.scanned {
		c.dropOlderQueues()
	}
	for ordinal := range c.queues {
		c.ordinal = max(c.ordinal, ordinal)
	}
	for ordinal, name := range c.names {
		c.ordinal = max(c.ordinal, ordinal)
		if _, known := c.queues[ordinal]; known || c.tombstones[ordinal] == math.MaxUint64 {
			continue
		}
		c.queues[ordinal] = localqueue.QueueState{Ordinal: ordinal, Name: name, Enqueued: unknownGap, Receipts: unknownGap}
		c.found.damage(Damage{Queue: name, What: "its metadata and its access policy are lost"})
	}
	for ordinal := range c.tombstones {
		c.ordinal = max(c.ordinal, ordinal)
	}
	for _, b := range c.damaged { // what is lost may have been the largest
		if b.bucket.is(metaBucket) && bytes.Equal(b.key, keyOrdinal) {
			c.ordinal += unknownGap
		}
	}
	if c.unreadable {
		c.ordinal += unknownGap
	}
}

// forgetOlderQueues leaves one queue of each name, the last that was created.
func (c *snapshot) dropOlderQueues() {
	last := map[queue.Name]uint64{}
	for ordinal, q := range c.queues {
		last[q.Name] = max(last[q.Name], ordinal)
	}
	for ordinal, name := range c.names {
		last[name] = max(last[name], ordinal)
	}
	for ordinal, q := range c.queues {
		if last[q.Name] != ordinal {
			delete(c.queues, ordinal)
			c.ordinal = max(c.ordinal, ordinal)
		}
	}
	for ordinal, name := range c.names {
		if last[name] != ordinal {
			delete(c.names, ordinal)
			c.ordinal = max(c.ordinal, ordinal)
		}
	}
}

func (c *snapshot) describe(b damagedRecord) Damage {
	d := Damage{What: fmt.Sprintf("a record of the bucket %q cannot be read (%s) and was set aside", b.bucket, b.reason)}
	if !b.bucket.is(headBucket) && !b.bucket.is(bodyBucket) {
		return d
	}
	if key, err := readKey(b.key); err == nil {
		d.Queue, d.Sequence = c.queues[key.Queue].Name, key.Sequence
	}
	if b.bucket.is(headBucket) {
		d.What = fmt.Sprintf("when it is due and how often it was dequeued cannot be read (%s): it is as it was enqueued", b.reason)
	} else {
		d.What = fmt.Sprintf("it cannot be read (%s) and was set aside", b.reason)
	}
	return d
}

func compareKeys(a, b localqueue.MessageState) int {
	return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Sequence, b.Sequence))
}

// newestFirst puts of the same message that state first which it had last.
func newestFirst(a, b localqueue.MessageState) int {
	return cmp.Or(compareKeys(a, b), cmp.Compare(b.Receipt, a.Receipt))
}

// settleMessages gives messages their heads, and leaves out those that were
// cleared and those of no queue.
func (c *snapshot) reconcileMessages() {
	if c.unreadable { // else they came in order
		slices.SortFunc(c.messages, newestFirst)
		slices.SortFunc(c.heads, newestFirst)
		c.messages = slices.CompactFunc(c.messages, func(a, b localqueue.MessageState) bool { return compareKeys(a, b) == 0 })
	}
	ours, h := c.messages[:0], 0
	for _, m := range c.messages {
		for h < len(c.heads) && compareKeys(c.heads[h], m) < 0 {
			h++
		}
		if h < len(c.heads) && c.heads[h].MessageKey == m.MessageKey && c.heads[h].Receipt >= m.Receipt {
			m.Due, m.Dequeues, m.Receipt = c.heads[h].Due, c.heads[h].Dequeues, c.heads[h].Receipt
		}
		if through, swept := c.tombstones[m.Queue]; swept && m.Sequence <= through {
			continue
		}
		if _, known := c.queues[m.Queue]; !known {
			c.orphans[m.Queue]++
			c.ordinal = max(c.ordinal, m.Queue)
			continue
		}
		ours = append(ours, m)
	}
	c.messages, c.heads = ours, nil
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
