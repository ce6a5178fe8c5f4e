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
type census struct {
	found  Found
	secret [32]byte
	copied [32]byte // the secret's copy
	singleValues
	accounts []localqueue.AccountState
	queues   map[uint64]localqueue.QueueState
	names    map[uint64]queue.Name
	leaving  []localqueue.LeavingName
	sweeps   map[uint64]uint64 // queue to sequence
	heads    []localqueue.MessageState
	messages []localqueue.MessageState
	have     tally // what the bodies are
	bad      []badRecord
	orphans  map[uint64]int // messages by a queue that is not known
	broken   bool           // pages could not be read
	newer    bool           // a record is of a later version
	wasted   float64        // what part of the pages is free
	anew     bool           // the file was made anew
	scanned  bool           // there are records of many commits, not of one tree
}

// singleValues are what the bucket of that name holds.
type singleValues struct {
	ordinal uint64
	tally   tally
	tallied bool
	counted bool // the tally only counts messages
	folded  folded
	commit  uint64 // of the tree; 0 when an earlier version wrote it
}

// kept is a record and where it is to be kept.
type kept struct {
	in          bucket
	key, record []byte
}

// badRecord is a record that is to be set aside.
type badRecord struct {
	kept
	why string
}

// unknownGap is how far a counter that was lost goes on beyond what is known to
// have been given out.
const unknownGap = 1 << 40

// newCensus is that of no file.
func newCensus() *census {
	return &census{
		queues:  map[uint64]localqueue.QueueState{},
		names:   map[uint64]queue.Name{},
		sweeps:  map[uint64]uint64{},
		orphans: map[uint64]int{},
	}
}

// takeCensus reads the census of a file.
func takeCensus(f *os.File) (*census, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	in, whole, err := inspect(f, info.Size())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	c := newCensus()
	if !whole {
		c.found.damage(Damage{What: "one of the two meta pages cannot be read: the newest commit may have been torn, the one before it is used"})
	}
	if !inTurn(in.meta, in.last) {
		c.broken = true
		c.found.damage(Damage{What: "the two meta pages are not those of one commit and of the one before: the newest commit may be lost"})
	}
	c.visit(in, c.record)
	if c.newer {
		return nil, ErrNewer
	}
	if c.folded.logs == oldLogs {
		return nil, errOldLogs
	}
	if c.scanned {
		c.folded = folded{time: c.folded.time} // it may be of any commit: all that is in the logs is taken
	}
	if c.commit != 0 && c.commit != in.meta.commit && !c.scanned {
		c.found.damage(Damage{What: fmt.Sprintf("the tree is that of commit %d and should be that of commit %d: what came in between is lost, or was deleted and is back", c.commit, in.meta.commit)})
	}
	c.wasted = 1 - float64(in.used+2)/float64(max(in.meta.high, 1))
	c.settle()
	return c, nil
}

// visit visits all records of the newest tree whose root can be read; if there is none,
// all that are on any page.
func (c *census) visit(in *inspector, visit func(in bucket, key, value []byte)) {
	in.damaged = func(page uint64, why error) {
		c.broken = true
		c.found.damage(Damage{What: fmt.Sprintf("a page cannot be read: %v", why)})
	}
	trees, err := in.trees()
	if err != nil {
		c.broken = true
		c.found.damage(Damage{What: fmt.Sprintf("the newest commit cannot be read: %v", err)})
		if in.older() {
			trees, err = in.trees()
		}
	}
	if err != nil {
		c.found.damage(Damage{What: "no commit can be read as a whole: every page was searched for messages, and some that were deleted may be back"})
		c.scanned = true
		in.scan(visit)
		return
	}
	if in.meta.high > uint64(in.size)/uint64(in.meta.pageSize) {
		c.broken = true
		c.found.damage(Damage{What: "the file is shorter than it was"})
	}
	if in.meta.free != noFreelist { // bbolt would believe it, and no store writes one
		c.broken = true
		c.found.damage(Damage{What: "there is a list of free pages, which another program must have written"})
	}
	for _, name := range buckets {
		i := slices.IndexFunc(trees, func(t tree) bool { return bytes.Equal(t.name, name) })
		if i < 0 {
			c.broken = true
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
func (c *census) record(in bucket, key, value []byte) {
	err := c.read(in, key, value)
	switch {
	case err == nil:
	case errors.Is(err, ErrNewer):
		c.newer = true
	default:
		c.bad = append(c.bad, badRecord{kept{in, slices.Clone(key), slices.Clone(value)}, err.Error()})
	}
	if d := c.have.of(in); d != nil {
		d.add(key, value) // bad ones too: they are counted as they were written
	}
}

func (b bucket) is(other bucket) bool { return bytes.Equal(b, other) }

func (c *census) read(in bucket, key, value []byte) error {
	switch {
	case in.is(bodies):
		m, text, err := readBody(key, value)
		if err == nil {
			c.messages = append(c.messages, m)
			c.found.Bytes += int64(len(text))
		}
		return err
	case in.is(heads):
		m, err := readHead(key, value)
		if err == nil {
			c.heads = append(c.heads, m)
		}
		return err
	case in.is(queues):
		q, err := readQueue(key, value)
		if err == nil {
			c.queues[q.Ordinal] = q
		}
		return err
	case in.is(names):
		return c.readNames(key, value)
	case in.is(accounts):
		a, err := readAccount(key, value)
		if err == nil {
			c.accounts = append(c.accounts, a)
		}
		return err
	case in.is(leaving):
		l, err := readLeaving(key, value)
		if err == nil {
			c.leaving = append(c.leaving, l)
		}
		return err
	case in.is(sweeps):
		k, err := readSweep(key, value)
		if err == nil {
			c.sweeps[k.Queue] = max(c.sweeps[k.Queue], k.Sequence)
		}
		return err
	case in.is(singles):
		return c.readSingles(key, value)
	default: // set aside before
		c.found.SetAside++
		return nil
	}
}

func (c *census) readNames(key, value []byte) (err error) {
	if bytes.Equal(key, keySecret) {
		c.copied, err = readSecret(names, value)
		return err
	}
	ordinal, name, err := readName(key, value)
	if err == nil {
		c.names[ordinal] = name
	}
	return err
}

func (c *census) readSingles(key, value []byte) (err error) {
	switch {
	case bytes.Equal(key, keySecret):
		c.secret, err = readSecret(singles, value)
	case bytes.Equal(key, keyOrdinal):
		err = readSingle(key, value, &c.ordinal)
	case bytes.Equal(key, keyTally):
		c.tally, c.counted, err = readTally(value)
		c.tallied = c.tallied || err == nil
	case bytes.Equal(key, keyCommit):
		err = readSingle(key, value, &c.commit)
	case bytes.Equal(key, keyFolded):
		c.folded, err = readFolded(value)
	default:
		err = errRecord
	}
	return err
}

// settle puts together what was read: heads with bodies, messages with queues,
// copies in place of what was lost.
func (c *census) settle() {
	c.settleQueues()
	for _, b := range c.bad {
		c.found.damage(c.explain(b))
	}
	c.compareTallies()
	c.settleMessages()
	for ordinal, n := range c.orphans {
		c.found.damage(Damage{What: fmt.Sprintf("%d messages are of the queue with the ordinal %d, which is not known: they were set aside", n, ordinal)})
	}
	c.found.Queues, c.found.Messages = len(c.queues), len(c.messages)
	if c.secret == ([32]byte{}) {
		c.secret = c.copied
		if c.secret == ([32]byte{}) && (len(c.queues) > 0 || c.ordinal > 0) {
			_, _ = rand.Read(c.secret[:]) // which never fails
			c.found.damage(Damage{What: "the secret that ids and receipts are made of is lost: messages have other ids now, no receipt from before is good, and what only a log had is lost"})
		}
	}
}

// compareTallies finds out whether the records are those of the newest commit.
func (c *census) compareTallies() {
	have, want := c.have.bodies, c.tally.bodies
	if c.counted {
		have.sum = want.sum
	}
	if have != want {
		c.found.damage(Damage{What: fmt.Sprintf("there should be %d messages in the file and there are %d: some are lost, or were deleted and are back, or are as they were before", want.count, have.count)})
	}
	have, want = c.have.others, c.tally.others
	if have != want && !c.counted {
		c.found.damage(Damage{What: fmt.Sprintf("there should be %d records besides the messages in the file and there are %d: some queues, their settings, or when messages are due are lost, or are as they were before", want.count, have.count)})
	}
}

// settleQueues brings queues back of which only the name is left.
func (c *census) settleQueues() {
	if c.scanned {
		c.forgetOlderQueues()
	}
	for ordinal := range c.queues {
		c.ordinal = max(c.ordinal, ordinal)
	}
	for ordinal, name := range c.names {
		c.ordinal = max(c.ordinal, ordinal)
		if _, known := c.queues[ordinal]; known || c.sweeps[ordinal] == math.MaxUint64 {
			continue
		}
		c.queues[ordinal] = localqueue.QueueState{Ordinal: ordinal, Name: name, Enqueued: unknownGap, Receipts: unknownGap}
		c.found.damage(Damage{Queue: name, What: "its metadata and its access policy are lost"})
	}
	for ordinal := range c.sweeps {
		c.ordinal = max(c.ordinal, ordinal)
	}
	for _, b := range c.bad { // what is lost may have been the largest
		if b.in.is(singles) && bytes.Equal(b.key, keyOrdinal) {
			c.ordinal += unknownGap
		}
	}
	if c.broken {
		c.ordinal += unknownGap
	}
}

// forgetOlderQueues leaves one queue of each name, the last that was created.
func (c *census) forgetOlderQueues() {
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

func (c *census) explain(b badRecord) Damage {
	d := Damage{What: fmt.Sprintf("a record of the bucket %q cannot be read (%s) and was set aside", b.in, b.why)}
	if !b.in.is(heads) && !b.in.is(bodies) {
		return d
	}
	if key, err := readKey(b.key); err == nil {
		d.Queue, d.Sequence = c.queues[key.Queue].Name, key.Sequence
	}
	if b.in.is(heads) {
		d.What = fmt.Sprintf("when it is due and how often it was dequeued cannot be read (%s): it is as it was enqueued", b.why)
	} else {
		d.What = fmt.Sprintf("it cannot be read (%s) and was set aside", b.why)
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
func (c *census) settleMessages() {
	if c.broken { // else they came in order
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
		if through, swept := c.sweeps[m.Queue]; swept && m.Sequence <= through {
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
func (c *census) saved() localqueue.Saved {
	return localqueue.Saved{
		Secret:   c.secret,
		Ordinal:  c.ordinal,
		Accounts: c.accounts,
		Queues:   slices.Collect(maps.Values(c.queues)),
		Leaving:  c.leaving,
		Messages: slices.Values(c.messages),
	}
}
