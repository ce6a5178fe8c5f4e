package filequeue

import (
	"encoding/binary"

	bolt "go.etcd.io/bbolt"

	"github.com/millrace/millrace/queue/localqueue"
)

// foldAndLog commits to the tree, and begins logs if there are none that can be used.
func (s *Store) checkpointAndLog(changes []localqueue.Change) (more bool, err error) {
	more, err = s.checkpoint(changes)
	if err == nil && !s.logsReady {
		_ = s.startLogs() // else it is tried again with the next commit
	}
	return more, err
}

// fold commits to the tree what is in the log, and changes. It writes what changed and
// what leads there, waits for the disk, then writes where the newest tree begins, and
// waits again: a kill or a power cut in between leaves the commit before.
func (s *Store) checkpoint(changes []localqueue.Change) (more bool, err error) {
	for _, c := range changes {
		if _, is := c.(localqueue.SecretSaved); is {
			s.logsReady = false // what is in the logs is salted with another
		}
	}
	var w treeTx
	err = s.update(func(tx *bolt.Tx) error {
		w = treeTx{digest: s.digest}
		w.begin(tx)
		return w.apply(s.pending.inOrder(), changes, s.nextCheckpoint())
	})
	if err != nil {
		if err = s.resolveFailure(&w, err); err != nil {
			return false, err
		}
	}
	s.number++
	s.checkpointed = s.number
	s.digest, s.moreWork = w.digest, w.more
	for _, c := range changes {
		if secret, is := c.(localqueue.SecretSaved); is {
			s.secret = secret
			s.saltLogs(secret)
		}
	}
	s.switchLogs()
	return w.more, nil
}

// foldedNext is what the tree has after the commit that comes next.
func (s *Store) nextCheckpoint() checkpoint {
	if s.logsReady {
		return checkpoint{s.number + 1, hasLogs, s.time}
	}
	return checkpoint{s.number + 1, noLogs, s.time}
}

// forget goes on with an empty log. The one that was used is left as it is until the
// next fold: should the newest tree turn out to be torn, the one before and that log
// still have everything.
func (s *Store) switchLogs() {
	s.pending = newPending()
	s.recent.Store(newRecentTexts(s.number))
	if l := s.logs[s.active]; l != nil && l.end > 0 {
		s.active = 1 - s.active
		if l := s.logs[s.active]; l != nil {
			l.end = 0
		}
	}
}

// foldLast leaves nothing in the logs, and writes that down in a commit of its own: so
// both of the newest commits have everything.
func (s *Store) finalCheckpoint() error {
	if len(s.pending.messages) > 0 {
		if _, err := s.checkpoint(nil); err != nil {
			return err
		}
	}
	return s.update(func(tx *bolt.Tx) error {
		return tx.Bucket(metaBucket).Put(keyCheckpoint, checkpoint{s.number, noLogs, s.time}.record())
	})
}

// What the record of the last commit in the tree says of logs.
const (
	noLogs  uint64 = iota // the tree has everything
	oldLogs               // they are there, and an earlier version wrote them, without end marks
	hasLogs               // they are there, and may have more
)

// folded says what the tree has.
type checkpoint struct {
	number uint64 // the last commit
	logs   uint64 // noLogs, oldLogs or hasLogs
	time   int64  // of the last commit, by the engine's clock; 0 when it is not known
}

func (f checkpoint) record() []byte {
	b := binary.BigEndian.AppendUint64([]byte{secondVersion}, f.number)
	b = binary.BigEndian.AppendUint64(b, f.logs)
	return appendChecksum(binary.BigEndian.AppendUint64(b, uint64(f.time)), 0, metaBucket, keyCheckpoint)
}

func readCheckpoint(record []byte) (checkpoint, error) {
	version, f, err := openVersionedRecord(secondVersion, metaBucket, keyCheckpoint, record)
	if err != nil {
		return checkpoint{}, err
	}
	read := checkpoint{number: f.uint64(), logs: f.uint64()}
	if version == secondVersion {
		read.time = f.int64()
	} else if read.logs != noLogs {
		read.logs = oldLogs
	}
	return read, f.end()
}
