package filequeue

import (
	"errors"
	"fmt"
	"io/fs"
)

// recoverLogs replays the logs and continues where they end. A checkpoint follows if the logs
// may have the only copy of something after damage, or if an earlier release wrote them.
func (s *Store) recoverLogs() error {
	s.reserve.findExisting()
	if err := s.openLogs(); err != nil {
		return err
	}
	if err := s.replay(); err != nil {
		return err
	}
	s.secret, s.checkpointed, s.logBuffer = s.snapshot.secret, s.snapshot.checkpoint.number, make([]byte, recordHeader)
	s.digest, s.moreWork = s.snapshot.actual, len(s.snapshot.tombstones) > 0 && !s.snapshot.rebuilt
	damaged := s.snapshot.found.Damaged > 0
	earlier := s.snapshot.checkpoint.logs != noLogs && s.snapshot.checkpoint.logs != logFormat
	s.logsReady = s.snapshot.checkpoint.logs == logFormat && !damaged
	if err := s.usingReserve(s.repair); err != nil {
		return err
	}
	if damaged || earlier {
		if err := s.usingReserve(func() error { _, err := s.checkpoint(nil); return err }); err != nil {
			return err
		}
	}
	if err := s.prepareLogs(); err != nil {
		return err
	}
	s.found = s.snapshot.found
	_ = s.reserve.allocate() // if the disk is full, it is tried again before anything grows
	return nil
}

// prepareLogs leaves logs that can be appended to.
func (s *Store) prepareLogs() error {
	switch {
	case !s.logsReady:
		return s.startLogs()
	case s.snapshot.found.Torn: // otherwise it would be found again
		return s.logs[s.active].writeEndMark(s.number)
	default:
		return nil
	}
}

// repair repairs the tree, unless it was rebuilt or there is nothing to do.
func (s *Store) repair() error {
	if s.snapshot.rebuilt || s.snapshot.found.Damaged == 0 && len(s.snapshot.deleting) == 0 {
		return nil
	}
	have, quarantined := s.snapshot.actual, s.snapshot.found.Quarantined
	err := s.update(s.snapshot.repair)
	if err != nil {
		s.snapshot.actual, s.snapshot.found.Quarantined = have, quarantined
	}
	s.digest = s.snapshot.actual
	return err
}

func (s *Store) openLogs() error {
	for i := range s.logs {
		l, err := openWAL(s.dir, i+1, s.maxLogSize, 0)
		if errors.Is(err, fs.ErrNotExist) {
			if s.snapshot.checkpoint.logs != noLogs {
				s.snapshot.found.damage(Damage{What: fmt.Sprintf("the log %s is missing: %s", walName(i+1), mayBeLost)})
			}
			continue
		}
		if err != nil {
			return err
		}
		if format := s.snapshot.checkpoint.logs; format != noLogs {
			l.format = format
			l.end = l.start()
		}
		s.logs[i] = l
	}
	s.saltLogs(s.snapshot.secret)
	return nil
}

// mayBeLost is the consequence of a missing part of a log.
const mayBeLost = "the last commits may be lost, including acknowledged ones: messages that they enqueued are gone, and messages that they deleted are back"
