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

	"github.com/millrace/millrace/internal/boltfile"
	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/queue"
)

// snapshot is the content of a file, read before bbolt opens it: everything except texts,
// which are only checked.
type snapshot struct {
	found      Found
	secret     [32]byte
	secretCopy [32]byte // the copy in nameBucket
	metaValues
	accounts   []localengine.AccountState
	queues     map[uint64]localengine.QueueState
	names      map[uint64]queue.Name
	deleting   []localengine.DeletingName
	tombstones map[uint64]uint64 // queue to sequence
	heads      []localengine.MessageState
	messages   []localengine.MessageState
	actual     digest // of the records found
	damaged    []damagedRecord
	orphans    map[uint64]int // the number of messages of each unknown queue
	unreadable bool           // some pages cannot be read
	newer      bool           // some record is of a later version
	deleted    int64          // the size in bytes of the records that tombstones delete
	freeShare  float64        // the share of the file that is free, or will be without them
	rebuilt    bool           // the file was rebuilt
	scanned    bool           // the records are of many commits, not of one tree
}

// metaValues is the content of metaBucket.
type metaValues struct {
	ordinal    uint64
	digest     digest
	hasDigest  bool
	countsOnly bool // the digest only counts messages
	checkpoint checkpoint
	commit     uint64 // of the tree; 0 if an earlier version wrote it
}

type bucketRecord struct {
	bucket      bucket
	key, record []byte
}

type damagedRecord struct {
	bucketRecord
	reason string
}

func newSnapshot() *snapshot {
	return &snapshot{
		queues:     map[uint64]localengine.QueueState{},
		names:      map[uint64]queue.Name{},
		tombstones: map[uint64]uint64{},
		orphans:    map[uint64]int{},
	}
}

func readSnapshot(f *os.File) (*snapshot, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	file, err := boltfile.NewReader(f, info.Size())
	if errors.Is(err, boltfile.ErrNoMeta) {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w; check the disk", err)
	}
	s := newSnapshot()
	if !file.Whole() {
		s.found.damage("one of the two meta pages cannot be read: the newest commit may have been torn; the one before is used")
	}
	if !file.Consecutive() {
		s.unreadable = true
		s.found.damage("the two meta pages are not of consecutive commits: the newest commit may be lost")
	}
	s.visitRecords(file, s.addRecord)
	if s.newer {
		return nil, ErrNewer
	}
	if s.scanned {
		s.checkpoint = checkpoint{time: s.checkpoint.time} // it may be of any commit, so replay all logs
	}
	if s.commit != 0 && s.commit != file.Meta.Commit && !s.scanned {
		s.found.damage(fmt.Sprintf("the tree is of commit %d and should be of commit %d: changes in between are lost", s.commit, file.Meta.Commit))
	}
	used := float64(file.Used()+2) - float64(s.deleted)/float64(file.Meta.PageSize)
	s.freeShare = 1 - used/float64(max(file.Meta.High, 1))
	s.reconcile()
	return s, nil
}

// visitRecords visits all records of the newest tree whose root can be read or, if there is
// none, the records on all pages.
func (s *snapshot) visitRecords(file *boltfile.Reader, visit func(in bucket, key, value []byte)) {
	trees, err := file.Buckets()
	if err != nil {
		s.unreadable = true
		s.found.damage(fmt.Sprintf("the newest commit cannot be read: its root: %v", err))
		if file.FallBack() {
			trees, err = file.Buckets()
		}
	}
	if err != nil {
		s.found.damage("no commit can be read completely: every page was searched for messages, and deleted ones may be back")
		s.scanned = true
		scan(file, visit)
		return
	}
	if file.Truncated() {
		s.unreadable = true
		s.found.damage("the file is truncated")
	}
	if file.Meta.HasFreelist() { // bbolt would trust it, and no store writes one
		s.unreadable = true
		s.found.damage("there is a freelist, which another program must have written")
	}
	for _, name := range buckets {
		i := slices.IndexFunc(trees, func(t boltfile.Bucket) bool { return bytes.Equal(t.Name, name) })
		if i < 0 {
			s.unreadable = true
			s.found.damage(fmt.Sprintf("the bucket %q is missing", name))
			continue
		}
		s.visitTree(file, trees[i], func(key, value []byte) { visit(name, key, value) })
		trees = slices.Delete(trees, i, i+1)
	}
	for _, t := range trees { // bbolt would read them too
		s.visitTree(file, t, func([]byte, []byte) {})
	}
}

// visitTree visits the records of one bucket, as many as can be read.
func (s *snapshot) visitTree(file *boltfile.Reader, tree boltfile.Bucket, visit func(key, value []byte)) {
	damaged := func(why error) {
		s.unreadable = true
		s.found.damage(fmt.Sprintf("a page cannot be read: the bucket %q: %v", tree.Name, why))
	}
	entry := func(e boltfile.Entry) error {
		if e.Bucket {
			damaged(errors.New("it has a nested bucket"))
			return nil // the other entries of the page are read
		}
		visit(e.Key, e.Value)
		return nil
	}
	_ = file.Walk(tree, entry, func(why error) error { damaged(why); return nil })
}

// scan visits every record of any commit: a record may occur several times, in several
// states, and so may deleted ones. It visits only records whose checksum matches a bucket.
func scan(file *boltfile.Reader, visit func(in bucket, key, value []byte)) {
	file.Scan(func(e boltfile.Entry) {
		for _, name := range buckets {
			if _, err := openRecord(name, e.Key, e.Value); err == nil {
				visit(name, e.Key, e.Value)
			}
		}
	})
}

// addRecord adds one record, or lists it as damaged.
func (s *snapshot) addRecord(in bucket, key, value []byte) {
	err := s.parseRecord(in, key, value)
	switch {
	case err == nil:
	case errors.Is(err, ErrNewer):
		s.newer = true
	default:
		s.damaged = append(s.damaged, damagedRecord{bucketRecord{in, slices.Clone(key), slices.Clone(value)}, err.Error()})
	}
	if d := s.actual.of(in); d != nil {
		d.add(key, value) // damaged ones too: they were counted when written
	}
}

func (s *snapshot) tombstoned(k localengine.MessageKey) bool {
	through, deleted := s.tombstones[k.Queue]
	return deleted && k.Sequence <= through
}

func (b bucket) is(other bucket) bool { return bytes.Equal(b, other) }

func (s *snapshot) parseRecord(in bucket, key, value []byte) error {
	switch {
	case in.is(bodyBucket):
		m, text, err := readBody(key, value)
		switch {
		case err != nil:
		case s.tombstoned(m.MessageKey):
			s.deleted += int64(len(key) + len(value))
		default:
			s.messages = append(s.messages, m)
			s.found.Bytes += int64(len(text))
		}
		return err
	case in.is(headBucket):
		m, err := readHead(key, value)
		if err == nil {
			s.heads = append(s.heads, m)
		}
		return err
	case in.is(queueBucket):
		q, err := readQueue(key, value)
		if err == nil {
			s.queues[q.Ordinal] = q
		}
		return err
	case in.is(nameBucket):
		return s.readNames(key, value)
	case in.is(accountBucket):
		a, err := readAccount(key, value)
		if err == nil {
			s.accounts = append(s.accounts, a)
		}
		return err
	case in.is(deletingBucket):
		l, err := readDeleting(key, value)
		if err == nil {
			s.deleting = append(s.deleting, l)
		}
		return err
	case in.is(tombstoneBucket):
		k, err := readTombstone(key, value)
		if err == nil {
			s.tombstones[k.Queue] = max(s.tombstones[k.Queue], k.Sequence)
		}
		return err
	case in.is(metaBucket):
		return s.readMeta(key, value)
	default: // quarantined before
		s.found.Quarantined++
		return nil
	}
}

func (s *snapshot) readNames(key, value []byte) (err error) {
	if bytes.Equal(key, keySecret) {
		s.secretCopy, err = readSecret(nameBucket, value)
		return err
	}
	ordinal, name, err := readName(key, value)
	if err == nil {
		s.names[ordinal] = name
	}
	return err
}

func (s *snapshot) readMeta(key, value []byte) (err error) {
	switch {
	case bytes.Equal(key, keySecret):
		s.secret, err = readSecret(metaBucket, value)
	case bytes.Equal(key, keyOrdinal):
		err = readMetaRecord(key, value, &s.ordinal)
	case bytes.Equal(key, keyDigest):
		s.digest, s.countsOnly, err = readDigest(value)
		s.hasDigest = s.hasDigest || err == nil
	case bytes.Equal(key, keyCommit):
		err = readMetaRecord(key, value, &s.commit)
	case bytes.Equal(key, keyCheckpoint):
		s.checkpoint, err = readCheckpoint(value)
	default:
		err = errRecord
	}
	return err
}

// saved converts the snapshot for the engine, which then owns it.
func (s *snapshot) saved() localengine.Saved {
	return localengine.Saved{
		Secret:   s.secret,
		Ordinal:  s.ordinal,
		Accounts: s.accounts,
		Queues:   slices.Collect(maps.Values(s.queues)),
		Deleting: s.deleting,
		Messages: slices.Values(s.messages),
	}
}

// reconcile combines the records: heads with bodies, messages with queues, copies in place
// of lost records.
func (s *snapshot) reconcile() {
	s.reconcileQueues()
	for _, b := range s.damaged {
		s.found.damage(s.describe(b))
	}
	// Check that the records are those of the newest commit.
	have, want := s.actual.bodies, s.digest.bodies
	if s.countsOnly {
		have.sum = want.sum
	}
	if have != want {
		s.found.damage(fmt.Sprintf("the file should have %d messages and has %d: some are lost, or deleted ones are back, or some are in an earlier state", want.count, have.count))
	}
	have, want = s.actual.others, s.digest.others
	if have != want && !s.countsOnly {
		s.found.damage(fmt.Sprintf("the file should have %d records besides the messages and has %d: "+
			"some queues, settings or message states are lost or are earlier ones", want.count, have.count))
	}
	s.reconcileMessages()
	for ordinal, n := range s.orphans {
		s.found.damage(fmt.Sprintf("%d messages belong to the unknown queue with ordinal %d: they were quarantined", n, ordinal))
	}
	s.found.Queues, s.found.Messages = len(s.queues), len(s.messages)
	if s.secret == ([32]byte{}) {
		s.secret = s.secretCopy
		if s.secret == ([32]byte{}) && (len(s.queues) > 0 || s.ordinal > 0) {
			_, _ = rand.Read(s.secret[:]) // which never fails
			s.found.damage("the secret of ids and receipts is lost: messages have new ids, old receipts are invalid, and commits that only a log had are lost")
		}
	}
}

// reconcileQueues restores queues of which only the name is left.
func (s *snapshot) reconcileQueues() {
	if s.scanned {
		// Keep only the newest queue of each name.
		last := map[queue.Name]uint64{}
		for ordinal, q := range s.queues {
			last[q.Name] = max(last[q.Name], ordinal)
		}
		for ordinal, name := range s.names {
			last[name] = max(last[name], ordinal)
		}
		for ordinal, q := range s.queues {
			if last[q.Name] != ordinal {
				delete(s.queues, ordinal)
				s.ordinal = max(s.ordinal, ordinal)
			}
		}
		for ordinal, name := range s.names {
			if last[name] != ordinal {
				delete(s.names, ordinal)
				s.ordinal = max(s.ordinal, ordinal)
			}
		}
	}
	for ordinal := range s.queues {
		s.ordinal = max(s.ordinal, ordinal)
	}
	for ordinal, name := range s.names {
		s.ordinal = max(s.ordinal, ordinal)
		if _, known := s.queues[ordinal]; known || s.tombstones[ordinal] == math.MaxUint64 {
			continue
		}
		s.queues[ordinal] = localengine.QueueState{Ordinal: ordinal, Name: name, Enqueued: unknownGap, Receipts: unknownGap}
		s.found.damage(fmt.Sprintf("queue %v: its metadata and its access policy are lost", name))
	}
	for ordinal := range s.tombstones {
		s.ordinal = max(s.ordinal, ordinal)
	}
	for _, b := range s.damaged { // the lost one may have been the largest
		if b.bucket.is(metaBucket) && bytes.Equal(b.key, keyOrdinal) {
			s.ordinal += unknownGap
		}
	}
	if s.unreadable {
		s.ordinal += unknownGap
	}
}

func (s *snapshot) describe(b damagedRecord) string {
	if !b.bucket.is(headBucket) && !b.bucket.is(bodyBucket) {
		return fmt.Sprintf("a record of the bucket %q cannot be read (%s) and was quarantined", b.bucket, b.reason)
	}
	what := fmt.Sprintf("it cannot be read (%s) and was quarantined", b.reason)
	if b.bucket.is(headBucket) {
		what = fmt.Sprintf("its visibility and dequeue count cannot be read (%s): it is as it was when enqueued", b.reason)
	}
	key, err := readKey(b.key)
	name := s.queues[key.Queue].Name
	switch {
	case err != nil || name == (queue.Name{}):
		return what
	case key.Sequence == 0:
		return fmt.Sprintf("queue %v: %s", name, what)
	}
	return fmt.Sprintf("queue %v, message %d: %s", name, key.Sequence, what)
}

func compareKeys(a, b localengine.MessageState) int {
	return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Sequence, b.Sequence))
}

func newestFirst(a, b localengine.MessageState) int {
	return cmp.Or(compareKeys(a, b), cmp.Compare(b.Receipt, a.Receipt))
}

// reconcileMessages gives messages their heads, and drops deleted messages and those
// without a queue.
func (s *snapshot) reconcileMessages() {
	if s.unreadable { // otherwise they are in order
		slices.SortFunc(s.messages, newestFirst)
		slices.SortFunc(s.heads, newestFirst)
		s.messages = slices.CompactFunc(s.messages, func(a, b localengine.MessageState) bool { return compareKeys(a, b) == 0 })
	}
	ours, h := s.messages[:0], 0
	for _, m := range s.messages {
		for h < len(s.heads) && compareKeys(s.heads[h], m) < 0 {
			h++
		}
		if h < len(s.heads) && s.heads[h].MessageKey == m.MessageKey && s.heads[h].Receipt >= m.Receipt {
			m.Due, m.Dequeues, m.Receipt = s.heads[h].Due, s.heads[h].Dequeues, s.heads[h].Receipt
		}
		if s.tombstoned(m.MessageKey) { // a search of all pages may find the tombstone last
			continue
		}
		if _, known := s.queues[m.Queue]; !known {
			s.orphans[m.Queue]++
			s.ordinal = max(s.ordinal, m.Queue)
			continue
		}
		ours = append(ours, m)
	}
	s.messages, s.heads = ours, nil
}

// unknownGap is added to a counter whose value was lost, so that no number is used twice.
const unknownGap = 1 << 40
