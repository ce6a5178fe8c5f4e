package filequeue

import (
	"encoding/binary"

	bolt "go.etcd.io/bbolt"

	"github.com/millrace/millrace/queue/localqueue/storage"
)

// checkpointAndLog writes a checkpoint with the changes, and then begins logs if there are
// none that can be used.
func (s *Store) checkpointAndLog(changes []storage.Change) (more bool, err error) {
	more, err = s.checkpoint(changes)
	if err == nil && !s.logsReady {
		_ = s.startLogs() // a failure is tried again with the next commit
	}
	return more, err
}

// checkpoint commits the outcome of the log, and changes, to the tree. bbolt writes the
// changed pages, waits for the disk, then writes the new root and waits again: a kill or a
// power cut in between leaves the commit before.
func (s *Store) checkpoint(changes []storage.Change) (more bool, err error) {
	for _, c := range changes {
		if _, is := c.(storage.SecretSaved); is {
			s.logsReady = false // the logs are salted with the old one
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
		if secret, is := c.(storage.SecretSaved); is {
			s.secret = secret
			s.saltLogs(secret)
		}
	}
	s.switchLogs()
	return w.more, nil
}

// nextCheckpoint returns the checkpoint of the next commit to the tree.
func (s *Store) nextCheckpoint() checkpoint {
	if s.logsReady {
		return checkpoint{s.number + 1, logFormat, s.time}
	}
	return checkpoint{s.number + 1, noLogs, s.time}
}

// switchLogs switches to the other log, empty. The one that was used stays until the next
// checkpoint: should the newest tree turn out to be torn, the tree before and that log
// still have everything.
func (s *Store) switchLogs() {
	s.pending = newPending()
	s.recent.Store(newRecentTexts(s.number))
	if l := s.logs[s.active]; l != nil && l.end > l.start() {
		s.active = 1 - s.active
		if l := s.logs[s.active]; l != nil {
			l.end = l.start()
		}
	}
}

// finalCheckpoint empties the logs into the tree and records that in a commit of its own,
// so that both of the newest commits have everything.
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

// checkpoint says how far the tree is.
type checkpoint struct {
	number uint64 // the last commit that the tree has
	logs   uint64 // the format of the logs, which may have later commits; noLogs if there are none
	time   int64  // of that commit, by the engine's clock; 0 if unknown
}

// record has the second version while there are no logs, so that earlier releases read a
// directory that was closed cleanly. They refuse the third version: they cannot read the logs.
func (f checkpoint) record() []byte {
	version := byte(secondVersion)
	if f.logs > secondFormat {
		version = thirdVersion
	}
	b := binary.BigEndian.AppendUint64([]byte{version}, f.number)
	b = binary.BigEndian.AppendUint64(b, f.logs)
	return appendChecksum(binary.BigEndian.AppendUint64(b, uint64(f.time)), 0, metaBucket, keyCheckpoint)
}

func readCheckpoint(record []byte) (checkpoint, error) {
	version, f, err := openVersionedRecord(thirdVersion, metaBucket, keyCheckpoint, record)
	if err != nil {
		return checkpoint{}, err
	}
	read := checkpoint{number: f.uint64(), logs: f.uint64()}
	if version > recordVersion {
		read.time = f.int64()
	} else if read.logs != noLogs {
		read.logs = firstFormat // the first version had only a flag
	}
	if read.logs > logFormat {
		return checkpoint{}, ErrNewer
	}
	return read, f.end()
}
