package localqueue

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"maps"
	"sync"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/internal/naming"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// Properties returns metadata and depth. The depth is exact: it includes invisible messages
// and excludes expired ones.
func (q *handle) Properties(ctx context.Context) (queue.Properties, error) {
	const op = "properties"
	s, _, err := q.begin(ctx, noSpace, nil)
	if err != nil {
		return queue.Properties{}, q.fail(op, "", err)
	}
	p := queue.Properties{Depth: int64(s.backlog.len()), Metadata: maps.Clone(s.metadata)}
	if err := q.end(s).wait(ctx); err != nil {
		return queue.Properties{}, q.fail(op, "", err)
	}
	return p, nil
}

// Create creates the queue; see [queue.Queue.Create].
func (q *handle) Create(ctx context.Context, metadata map[string]string) error {
	_, err := q.CreateNew(ctx, metadata)
	return err
}

// CreateNew implements [localengine.Queue].
func (q *handle) CreateNew(ctx context.Context, metadata map[string]string) (created bool, err error) {
	e := q.engine
	bad := cmp.Or(q.refused, driver.CheckMetadata(metadata))
	err = e.call(ctx, "create", q.name, needsSpace, bad, func() (seen *ticket, err error) {
		created, seen, err = e.create(e.account(q.name.Account, true), q.name, metadata)
		return seen, err
	})
	return created && err == nil, err
}

// SetMetadata replaces all metadata. Nil and empty remove it.
func (q *handle) SetMetadata(ctx context.Context, metadata map[string]string) error {
	const op = "set metadata"
	s, _, err := q.begin(ctx, needsSpace, driver.CheckMetadata(metadata))
	if err != nil {
		return q.fail(op, "", err)
	}
	old := s.metadata
	s.metadata = maps.Clone(metadata)
	q.recordState(s, func() { s.metadata = old })
	return q.fail(op, "", q.end(s).wait(ctx))
}

// Clear deletes all messages. It takes O(1).
func (q *handle) Clear(ctx context.Context) error {
	const op = "clear"
	s, _, err := q.begin(ctx, noSpace, nil)
	if err != nil {
		return q.fail(op, "", err)
	}
	old := s.backlog
	s.backlog = newBacklog()
	q.record(s, localengine.QueueCleared{Queue: s.ordinal, Sequence: s.enqueued}, func() { s.backlog = old })
	return q.fail(op, "", q.end(s).wait(ctx))
}

// Drop deletes the queue and its messages. The name stays reserved for
// [Options].DeletingFor: meanwhile a create fails with [queue.ErrQueueBeingDeleted] and
// everything else with [queue.ErrQueueMissing].
func (q *handle) Drop(ctx context.Context) error {
	return q.engine.call(ctx, "drop", q.name, noSpace, q.refused, func() (*ticket, error) {
		if a := q.engine.account(q.name.Account, false); a != nil {
			return q.engine.drop(a, q.name.Queue)
		}
		return nil, errQueueMissing
	})
}

// call runs a call on an account or on the existence of a queue. It waits until the newest change
// that the result reveals is settled. bad is what is wrong with the arguments.
func (e *Engine) call(ctx context.Context, op string, name queue.Name, u spaceNeed, bad error, run func() (*ticket, error)) error {
	err := ready(ctx, bad)
	if err == nil {
		err = e.enter(u)
	}
	if err == nil {
		seen, failed := run()
		e.leave()
		err = settled(ctx, seen, failed)
	}
	if err == nil {
		return nil
	}
	return driver.Explain(err, op, name, "")
}

// create also returns the newest change that its result reveals.
func (e *Engine) create(a *accountState, name queue.Name, metadata map[string]string) (bool, *ticket, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.queues[name.Queue]; s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		seen := newer(a.pending, s.pending)
		if !sameMetadata(s.metadata, metadata) {
			return false, seen, &queue.Error{Kind: queue.ErrQueueExists, Hint: "set the metadata of the queue that exists, or create it with the same"}
		}
		return false, seen, nil
	}
	a.releaseNames(e.clock.now())
	if _, taken := a.deleting[name.Queue]; taken {
		return false, a.pending, &queue.Error{Kind: queue.ErrQueueBeingDeleted, Hint: "the name of a dropped queue is free again after 30 seconds or more"}
	}
	s := &queueState{ordinal: e.ordinal.Add(1), name: name, metadata: maps.Clone(metadata), backlog: newBacklog()}
	a.insert(s)
	if e.committer != nil {
		a.pending = e.committer.add(localengine.QueueSaved(s.state()), func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.remove(s)
			a.pending = nil
		})
		s.pending = a.pending
	}
	return true, a.pending, nil
}

func (e *Engine) drop(a *accountState, name string) (*ticket, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.queues[name]
	if s == nil {
		return a.pending, errQueueMissing
	}
	a.remove(s)
	at := e.clock.now()
	a.releaseNames(at)
	deleting := localengine.DeletingName{Name: s.name}
	if e.deletingFor > 0 {
		free := at + instant(e.deletingFor)
		deleting.Until = int64(free)
		a.markDeleting(name, free)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.backlog
	s.dropped = true
	s.endWatchers()
	s.backlog = newBacklog() // open handles must not keep the messages alive
	if e.committer != nil {
		a.pending = e.committer.add(localengine.QueueDropped{Ordinal: s.ordinal, Deleting: deleting}, func() { a.restore(s, left) })
		s.pending = a.pending
	}
	return a.pending, nil
}

// identity derives message ids and receipts by encrypting (ordinal of the queue, number
// within the queue). A block cipher is a permutation, so no two collide, and without the
// key none can be guessed from another.
type identity struct {
	ids      cipher.Block
	receipts cipher.Block
}

// newSecret derives a secret from the seed, or draws a random one if the seed is 0.
func newSecret(seed uint64) (secret [32]byte) {
	if seed == 0 {
		rand.Read(secret[:]) // never fails, see crypto/rand
		return secret
	}
	return sha256.Sum256(binary.BigEndian.AppendUint64([]byte("millrace localqueue"), seed))
}

func newIdentity(secret [32]byte) identity {
	return identity{ids: newCipher(secret[:16]), receipts: newCipher(secret[16:])}
}

func newCipher(key []byte) cipher.Block {
	b, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // only if the key does not have 16, 24 or 32 bytes
	}
	return b
}

// id returns the id of a queue's message, in the form of a GUID.
func (i identity) id(queueOrdinal, sequence uint64) queue.ID {
	return queue.ID(naming.FormatGUID(encrypt(i.ids, queueOrdinal, sequence)))
}

// sequence is the inverse of id: the sequence of the message with that id. False means that
// no message of the queue ever had it.
func (i identity) sequence(id queue.ID, queueOrdinal uint64) (uint64, bool) {
	parsed, ok := naming.ParseGUID(string(id)) // ids are case-sensitive, and so is Parse
	if !ok {
		return 0, false
	}
	b := blocks.Get().(*[16]byte)
	defer blocks.Put(b)
	*b = parsed
	i.ids.Decrypt(b[:], b[:])
	return binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[:8]) == queueOrdinal
}

// receiptLen is 16 bytes in padded standard Base64. Like the service's receipts, ours
// contain +, / and =, which clients must escape.
const receiptLen = 24

func (i identity) receipt(queueOrdinal, n uint64) queue.Receipt {
	s := i.encoded(queueOrdinal, n)
	return queue.Receipt(s[:])
}

func (i identity) matches(r queue.Receipt, queueOrdinal, n uint64) bool {
	s := i.encoded(queueOrdinal, n)
	return len(r) == receiptLen && subtle.ConstantTimeCompare([]byte(r), s[:]) == 1
}

func (i identity) encoded(queueOrdinal, n uint64) (s [receiptLen]byte) {
	b := encrypt(i.receipts, queueOrdinal, n)
	base64.StdEncoding.Encode(s[:], b[:])
	return s
}

// blocks are what ids and receipts are encrypted in. A cipher is an interface, so on the stack they cannot be.
var blocks = sync.Pool{New: func() any { return new([16]byte) }}

func encrypt(key cipher.Block, high, low uint64) [16]byte {
	b := blocks.Get().(*[16]byte)
	defer blocks.Put(b)
	binary.BigEndian.PutUint64(b[:8], high)
	binary.BigEndian.PutUint64(b[8:], low)
	key.Encrypt(b[:], b[:])
	return *b
}
