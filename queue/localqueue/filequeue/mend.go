package filequeue

import (
	"bytes"
	"math"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/millrace/millrace/queue/localqueue"
)

// mend brings a file into the state that the census says it has: bad records are
// set aside, and what is known from elsewhere is written again. Of a file that is
// sound it only takes away names that are free by now.
func (c *census) mend(tx *bolt.Tx) error {
	w := writing{tally: c.have}
	w.begin(tx)
	if err := c.release(&w); err != nil {
		return err
	}
	if c.found.Damaged > 0 || c.anew {
		if err := c.setAside(&w); err != nil {
			return err
		}
		if err := c.restore(&w); err != nil {
			return err
		}
	}
	c.have = w.tally
	return w.singles.Put(keyTally, w.tally.record())
}

// release takes away the names that are free by now: the engine forgets them too.
func (c *census) release(w *writing) error {
	at := time.Now().UnixNano()
	for _, l := range c.leaving {
		if l.Until > at {
			continue
		}
		if err := w.leaving.Delete(leavingKey(l.Name)); err != nil {
			return err
		}
	}
	return nil
}

// setAside moves the bad records, and messages of no queue, to the bucket for them.
func (c *census) setAside(w *writing) error {
	for _, b := range c.bad {
		if err := w.aside.Put(asideKey(b.in, b.key), b.record); err != nil {
			return err
		}
		c.found.SetAside++
		if k, err := readKey(b.key); err == nil && b.in.is(bodies) {
			if err := w.remove(k); err != nil {
				return err
			}
			continue
		}
		if err := w.bucket(b.in).Delete(b.key); err != nil {
			return err
		}
	}
	for ordinal := range c.orphans {
		if err := c.setAsideOrphans(w, ordinal); err != nil {
			return err
		}
	}
	return nil
}

func (c *census) setAsideOrphans(w *writing, ordinal uint64) error {
	for {
		keys, err := w.firstOf(localqueue.MessageKey{Queue: ordinal, Sequence: math.MaxUint64})
		if err != nil || len(keys) == 0 {
			return err
		}
		for _, k := range keys {
			if err := w.setAside(k); err != nil {
				return err
			}
			c.found.SetAside++
		}
	}
}

// restore writes everything but messages.
func (c *census) restore(w *writing) error {
	if c.secret != ([32]byte{}) {
		if err := w.secret(c.secret); err != nil {
			return err
		}
	}
	if err := w.singles.Put(keyOrdinal, singleRecord(keyOrdinal, c.ordinal)); err != nil {
		return err
	}
	for _, a := range c.accounts {
		if err := w.change(localqueue.AccountSaved(a)); err != nil {
			return err
		}
	}
	for _, q := range c.queues {
		key := ordinalKey(q.Ordinal)
		if err := w.names.Put(key, nameRecord(key, q.Name)); err != nil {
			return err
		}
		if err := w.queues.Put(key, queueRecord(key, q)); err != nil {
			return err
		}
	}
	at := time.Now().UnixNano()
	for _, l := range c.leaving {
		if l.Until <= at {
			continue
		}
		key := leavingKey(l.Name)
		if err := w.leaving.Put(key, leavingRecord(key, l)); err != nil {
			return err
		}
	}
	return nil
}

// bucket returns the bucket of a name, which is one of buckets.
func (w *writing) bucket(name bucket) *tallied {
	for _, b := range []struct {
		name bucket
		in   *tallied
	}{
		{singles, &w.singles}, {accounts, &w.accounts}, {names, &w.names}, {queues, &w.queues}, {leaving, &w.leaving},
		{sweeps, &w.sweeps}, {heads, &w.heads}, {bodies, &w.bodies},
	} {
		if bytes.Equal(b.name, name) {
			return b.in
		}
	}
	return &w.aside
}
