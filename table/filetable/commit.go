package filetable

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/millrace/millrace/internal/openfile"
	"github.com/millrace/millrace/internal/serviceerror"
	"github.com/millrace/millrace/table"
)

// request is a change, or a group of changes, on its way to a commit.
type request struct {
	bucket  []byte // of the table
	changes []change
	size    int          // of the records, in bytes
	done    chan outcome // has room for the one that comes
}

// change is a change with its place and record in the tree.
type change struct {
	table.Change
	key    []byte
	record []byte // without its header; nil for a deletion
}

// outcome is what became of a request.
type outcome struct {
	etags []table.ETag
	err   error
}

// newRequest returns a request for changes that were checked. It keeps nothing of them that their owner may change.
func newRequest(bucket []byte, changes []table.Change) *request {
	r := &request{bucket: bucket, changes: make([]change, len(changes)), done: make(chan outcome, 1)}
	for i, c := range changes {
		r.changes[i] = change{Change: c, key: keyOf(c.Entity().Key)}
		if !c.Deletes() {
			r.changes[i].record = newRecord(c.Entity())
		}
		r.size += len(r.changes[i].record)
	}
	return r
}

// submit has a request committed. If ctx ends first, its changes may have taken effect.
func (db *DB) submit(ctx context.Context, r *request) ([]table.ETag, error) {
	if db.isClosed() {
		return nil, ErrClosed
	}
	select {
	case db.requests <- r:
	case <-db.closing:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, serviceerror.Ended(ctx)
	}
	select {
	case o := <-r.done:
		return o.etags, o.err
	case <-ctx.Done():
		return nil, serviceerror.Ended(ctx)
	}
}

// commitForever commits requests until the DB is closed. It answers every request that it takes.
func (db *DB) commitForever() {
	for {
		select {
		case r := <-db.requests:
			db.answer(db.gather(r))
		case <-db.closing:
			return
		}
	}
}

// maxCommitSize, in bytes of records, and maxRequests bound what one commit takes.
const (
	maxCommitSize = 16 << 20
	maxRequests   = 1000
)

// gather adds to a request those that others wait with. It does not wait for more to come, but lets those run that
// the last commit has answered: they may be about to send their next one.
func (db *DB) gather(first *request) []*request {
	batch, size := []*request{first}, first.size
	for yielded := false; size < maxCommitSize && len(batch) < maxRequests; {
		select {
		case r := <-db.requests:
			batch, size, yielded = append(batch, r), size+r.size, false
		default:
			if yielded {
				return batch
			}
			runtime.Gosched()
			yielded = true
		}
	}
	return batch
}

// answer commits a batch and tells each of its requests what became of it. If the commit fails, so do all: what some
// of them found may have been a change that is not there now.
func (db *DB) answer(batch []*request) {
	outcomes, err := db.commit(batch)
	for i, r := range batch {
		if err != nil {
			r.done <- outcome{err: err}
		} else {
			r.done <- outcomes[i]
		}
	}
}

// commit makes the changes of all requests that can be made, in one transaction.
func (db *DB) commit(batch []*request) (outcomes []outcome, err error) {
	if err := db.checkUsable(); err != nil {
		return nil, err
	}
	committing := false
	defer recoverPanic(func(cause error) {
		db.broken, db.panicked = fmt.Errorf("an earlier commit failed; stop, and open the file again: %w", cause), true
		err = cause
		if committing {
			err = db.unavailable("commit to", cause)
		}
	})()
	tx, err := db.tree.Begin(true)
	if err != nil {
		return nil, db.unavailable("begin a commit to", err)
	}
	w := writer{tx: tx, version: db.version, now: time.Now(), full: db.ensureSpace(tx, batch)}
	for _, r := range batch {
		outcomes = append(outcomes, w.apply(r))
	}
	if err := w.end(); err != nil {
		return nil, db.unavailable("write to", errors.Join(err, tx.Rollback()))
	}
	if !w.wrote {
		return outcomes, tx.Rollback()
	}
	id := tx.ID()
	committing = true
	if err := tx.Commit(); err != nil {
		return nil, db.unavailable("commit to", db.settle(id, err))
	}
	if err := db.seal(); err != nil {
		return nil, db.unavailable("commit to", db.lost(err))
	}
	db.version = w.version
	return outcomes, nil
}

// ensureSpace returns the error of changes that need more space than there is, or nil. Free pages within the file are
// space too.
func (db *DB) ensureSpace(tx *bolt.Tx, batch []*request) error {
	need := db.reserve.need(batch)
	err := db.reserve.ensure(tx.Size(), need)
	if err == nil {
		return nil
	}
	stats := db.tree.Stats()
	if free := int64(stats.FreePageN+stats.PendingPageN) * int64(db.reserve.pageSize); free >= need+reserveSize {
		return nil
	}
	if !openfile.OutOfSpace(err) {
		return db.unavailable("allocate space for", err)
	}
	return &table.Error{Kind: table.ErrUnavailable, Detail: "the disk is full: no space for more in " + db.path, Err: err,
		Hint: "free space on the disk, or delete entities"}
}

// checkDeletedEvery is how often commits check whether the file was deleted.
const checkDeletedEvery = time.Second

// checkUsable returns why no change may be made. What is written to a file that was deleted would be lost with this
// process.
func (db *DB) checkUsable() error {
	if db.broken == nil && time.Since(db.checkedAt) >= checkDeletedEvery {
		db.checkedAt = time.Now()
		if info, err := db.file.Stat(); err == nil && !openfile.Linked(info) {
			db.broken = errors.New("the file was deleted while it was in use: nothing can be stored any more; stop, and open it again")
		}
	}
	if db.broken != nil {
		return db.unavailable("commit to", db.broken)
	}
	return nil
}

// settle returns why a commit that failed with cause did not take effect. If its root was written all the same, it can
// be read and may not survive a power cut.
func (db *DB) settle(id int, cause error) error {
	if newest, err := db.newestCommit(); err != nil || newest >= id {
		return db.lost(errors.Join(cause, err))
	}
	return cause
}

// lost refuses all further changes, because a commit that can be read may not be on disk. Waiting again proves nothing:
// systems forget failed writes.
func (db *DB) lost(cause error) error {
	db.broken = fmt.Errorf("it is unknown whether an earlier commit would survive a power cut; stop, and open the file again: %w", cause)
	return db.broken
}

// newestCommit returns bbolt's number of the newest commit.
func (db *DB) newestCommit() (id int, err error) {
	err = db.tree.View(func(tx *bolt.Tx) error { id = tx.ID(); return nil })
	return id, err
}

// writer makes the changes of one transaction.
type writer struct {
	tx      *bolt.Tx
	version uint64 // the last that an entity got
	now     time.Time
	full    error // of changes that make the table grow; nil if there is space for them
	wrote   bool
	failed  error // of bbolt; the transaction cannot go on
}

// apply makes the changes of a request, all or none. Each is checked against what the transaction has by now.
func (w *writer) apply(r *request) outcome {
	if w.failed != nil {
		return outcome{err: w.failed}
	}
	bucket, growth := w.tx.Bucket(r.bucket), 0
	for _, c := range r.changes {
		had, err := c.check(bucket)
		if err != nil {
			return outcome{err: table.Explain("", "", c.Entity().Key, err)}
		}
		growth += len(c.record) - had
		if c.Inserts() {
			growth += smallGrowth
		}
	}
	if w.full != nil && growth >= smallGrowth {
		return outcome{err: w.full}
	}
	if bucket == nil {
		bucket, w.failed = w.tx.CreateBucket(r.bucket)
	}
	if bucket != nil {
		bucket.FillPercent = fillPercent
	}
	etags := make([]table.ETag, len(r.changes))
	for i, c := range r.changes {
		if w.failed == nil {
			etags[i], w.failed = w.write(bucket, c)
		}
	}
	w.wrote = true
	return outcome{etags, w.failed}
}

// fillPercent is how full the first of two pages is when a page is split. Rows often begin with a time, so that they are
// inserted behind the last of their partition: that fills pages to four fifths then, and a file takes 0.6 times as much as
// with bbolt's half. With rows in random order it takes 1.15 times as much.
const fillPercent = 0.8

// check returns why a change cannot be made, or the size of the record that it replaces; bucket is nil if its table
// has no entity yet.
func (c change) check(bucket *bolt.Bucket) (had int, err error) {
	var record []byte
	if bucket != nil {
		record = bucket.Get(c.key)
	}
	if record == nil {
		return 0, c.Against("")
	}
	version, _, err := openRecord(c.key, record)
	switch {
	case err == nil:
		err = c.Against(etagOf(version))
	case errors.Is(err, ErrCorrupt) && !c.Inserts() && c.Entity().ETag == table.Any:
		err = nil // what is there is damaged, whatever it was
	}
	return len(record), err
}

func (w *writer) write(bucket *bolt.Bucket, c change) (table.ETag, error) {
	if c.Deletes() {
		return "", bucket.Delete(c.key)
	}
	w.version++
	finish(c.record, c.key, w.version, w.now)
	return etagOf(w.version), bucket.Put(c.key, c.record)
}

// end writes what belongs to every commit: the number of the last version.
func (w *writer) end() error {
	if w.failed != nil || !w.wrote {
		return w.failed
	}
	return w.tx.Bucket(aboutBucket).Put(versionKey, number(versionKey, w.version))
}

// reserveSize is how much of the file, in bytes, is kept free for changes that need no more space than they free, such as
// deletions: their commit has to write before it frees anything. Two of the largest entities fit, which share a
// page of the tree.
const reserveSize = 4 << 20

// reserve is the end of the file, behind all pages that were ever used. The disk has allocated it, so that commits
// do not fail half-way because the disk is full.
type reserve struct {
	file      *os.File
	pageSize  int
	sync      func() error // waits for the disk
	allocated int64        // the file is allocated up to here
}

// ensure allocates what a commit needs besides the reserve, in bytes; high is the end of the pages in use. It
// returns why there is not enough.
func (r *reserve) ensure(high, need int64) error {
	r.allocated = max(r.allocated, high) // what bbolt has written
	want := high + need + reserveSize
	if r.allocated >= want {
		return nil
	}
	ahead := min(max(want/16, 1<<20), 64<<20) // so that few commits have to
	err := r.allocate(want + ahead)
	if err != nil {
		err = r.allocate(want)
	}
	return err
}

// allocate keeps what it got before an error, so that the next try does not write it again.
func (r *reserve) allocate(to int64) (err error) {
	if r.allocated, err = allocate(r.file, r.allocated, to); err != nil {
		return err
	}
	return r.sync()
}

// need returns how much a commit of these requests may write, in bytes: each record twice, because a page is split
// in two, and for each change the pages from its leaf to the root. It is an estimate: the other entities of a page are
// written too.
func (r *reserve) need(batch []*request) (bytes int64) {
	pages := 16
	for _, one := range batch {
		bytes += 2 * int64(one.size)
		pages += 2 * len(one.changes)
	}
	return bytes + int64(pages*r.pageSize)
}

// smallGrowth is by how much, in bytes, a request may make its entities grow and still use the reserve, so that
// marks can be set before a deletion.
const smallGrowth = 512

// filling is what fill writes. Not zeros: some file systems store them without allocating space.
var filling = func() []byte {
	b := make([]byte, 64<<10)
	for i := range b {
		b[i] = byte(i*i>>3) | 1
	}
	return b
}()

// fill allocates a part of a file by writing it, and returns up to where it has.
func fill(f *os.File, from, to int64) (filled int64, err error) {
	for from < to {
		n, err := f.WriteAt(filling[:min(int64(len(filling)), to-from)], from)
		if from += int64(n); err != nil {
			return from, fmt.Errorf("allocate space: %w", err)
		}
	}
	return to, nil
}
