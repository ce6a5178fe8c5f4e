package filequeue

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/queue"
)

// abandon leaves the directory as a kill would.
func (s *store) abandon(t tester) {
	t.Helper()
	if err := errors.Join(s.closeFiles(), s.lock.Close(), s.dir.close()); err != nil {
		t.Fatal(err)
	}
}

// begun returns a new store with one queue.
func begun(t testing.TB, dir string) *store {
	t.Helper()
	s, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, s, localengine.SecretSaved{7},
		localengine.QueueSaved{Ordinal: 1, Name: queue.Name{Account: account, Queue: "logged"}, Enqueued: 1 << 20, Receipts: 1 << 20})
	return s
}

func commit(t testing.TB, s *store, changes ...localengine.Change) {
	t.Helper()
	if _, err := s.Commit(changes); err != nil {
		t.Fatal(err)
	}
}

func key(sequence uint64) localengine.MessageKey {
	return localengine.MessageKey{Queue: 1, Sequence: sequence}
}

func added(sequence uint64, text string) localengine.MessageAdded {
	return localengine.MessageAdded{MessageState: localengine.MessageState{MessageKey: key(sequence), Expires: 1 << 62}, Text: text}
}

// treeCommits returns how many commits the tree has had.
func treeCommits(t testing.TB, s *store) (id int) {
	t.Helper()
	if err := s.db.View(func(tx *bolt.Tx) error { id = tx.ID(); return nil }); err != nil {
		t.Fatal(err)
	}
	return id
}

// reopenedTexts opens an abandoned directory and returns all texts by sequence.
func reopenedTexts(t tester, dir string) (Found, map[uint64]string) {
	t.Helper()
	s, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.abandon(t)
	saved, view := loaded(t, s)
	defer view.Close()
	texts := map[uint64]string{}
	for m := range saved.Messages {
		if texts[m.Sequence], err = view.Text(m.MessageKey); err != nil {
			t.Fatal(err)
		}
	}
	return s.Found(), texts
}

// TestOrdinaryChangesDoNotTouchTheTree: they go to the log, and a message that was added
// and deleted never reaches the tree.
func TestOrdinaryChangesDoNotTouchTheTree(t *testing.T) {
	dir := memoryDirectory(t)
	s := begun(t, dir)
	before := treeCommits(t, s)
	for n := range uint64(100) {
		commit(t, s, added(n+1, "a"))
		commit(t, s, localengine.MessagesUpdated{added(n+1, "").MessageState})
		commit(t, s, localengine.MessageRemoved(key(n+1)))
	}
	if got := treeCommits(t, s) - before; got != 0 || len(s.pending.messages) != 0 {
		t.Errorf("300 commits: got %d commits to the tree and %d pending messages, want none", got, len(s.pending.messages))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if want := []string{filepath.Join(dir, lockName), filepath.Join(dir, fileName), filepath.Join(dir, reserveName)}; err != nil || !slices.Equal(names, want) {
		t.Errorf("files after Close: got %v, %v; want %v", names, err, want)
	}
}

// TestACheckpointEmptiesTheLog: there is a checkpoint when the log is full, when much of the tree has
// changed, and for a change that a record cannot hold. A kill after it loses nothing.
func TestACheckpointEmptiesTheLog(t *testing.T) {
	if testing.Short() {
		t.Skip("writes a large log")
	}
	kilobyte := strings.Repeat("x", 1000)
	for name, change := range map[string]func(n uint64) localengine.Change{
		"full":    func(n uint64) localengine.Change { return added(n, kilobyte) },
		"touched": func(n uint64) localengine.Change { return localengine.MessagesUpdated{added(n%1000, "").MessageState} },
		"touched at once": func(n uint64) localengine.Change {
			moved := make(localengine.MessagesUpdated, maxTouched+1)
			for i := range moved {
				moved[i] = added(uint64(i), "").MessageState
			}
			return moved
		},
		"another kind": func(uint64) localengine.Change { return localengine.AccountSaved{Name: "new"} },
		"too large":    func(n uint64) localengine.Change { return added(n, strings.Repeat("x", logSize)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := memoryDirectory(t)
			s := begun(t, dir)
			want := map[uint64]string{}
			for n := range uint64(1000) {
				want[n] = fmt.Sprint("old ", n)
				commit(t, s, added(n, want[n]))
			}
			commit(t, s, localengine.AccountSaved{Name: "check"})
			before := treeCommits(t, s)
			for n := uint64(1000); treeCommits(t, s) == before; n++ {
				c := change(n)
				if a, is := c.(localengine.MessageAdded); is {
					want[n] = a.Text
				}
				if n > 5000 {
					t.Fatal("checkpoints: got none, want one")
				}
				commit(t, s, c)
			}
			if commits := treeCommits(t, s) - before; commits != 1 || len(s.pending.messages) != 0 {
				t.Errorf("got %d commits to the tree, want 1; %d messages are left in the log, want 0", commits, len(s.pending.messages))
			}
			commit(t, s, localengine.MessageRemoved(key(7)))
			delete(want, 7)
			s.abandon(t)
			if found, texts := reopenedTexts(t, dir); found.Damaged > 0 || !maps.Equal(texts, want) {
				t.Errorf("opened again: got %v and %d messages, want %d", found, len(texts), len(want))
			}
		})
	}
}

// TestViewsOutliveCheckpoints: a view keeps its texts, wherever they were, even if they were
// replaced or deleted since.
func TestViewsOutliveCheckpoints(t *testing.T) {
	s := begun(t, memoryDirectory(t))
	commit(t, s, added(1, "in the tree"), added(2, "rewritten in the tree"))
	commit(t, s, localengine.AccountSaved{Name: "check"})
	commit(t, s, added(3, "in the log"), added(4, "rewritten in the log"))
	view, err := s.View()
	if err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		for n, want := range map[uint64]string{1: "in the tree", 2: "rewritten in the tree", 3: "in the log", 4: "rewritten in the log"} {
			if got, err := view.Text(key(n)); err != nil || got != want {
				t.Errorf("text %s: got %q, %v; want %q", when, got, err, want)
			}
		}
	}
	check("at first")
	for n := range uint64(4) {
		if n%2 == 0 {
			commit(t, s, localengine.MessageRemoved(key(n+1)))
		} else {
			commit(t, s, localengine.MessageRewritten(added(n+1, "new")))
		}
	}
	check("changed")
	commit(t, s, localengine.AccountSaved{Name: "check again"})
	check("commits")
	commit(t, s, added(5, "later"))
	check("and logged")
	newer, err := s.View()
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[uint64]string{2: "new", 4: "new", 5: "later"} {
		if got, err := newer.Text(key(n)); err != nil || got != want {
			t.Errorf("text of a new view: got %q, %v; want %q", got, err, want)
		}
	}
	view.Close()
	newer.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// killed is a directory after a kill: the tree, both logs, and the expected texts. The last
// commit adds the message 0.
type killed struct {
	files map[string][]byte
	texts map[uint64]string
	ever  map[uint64]string // those that were removed, too; nil when that does not matter
}

// killedSample returns a directory with a checkpoint and as many later commits in the log.
func killedSample(t testing.TB) killed {
	dir := memoryDirectory(t)
	s := begun(t, dir)
	k := killed{texts: map[uint64]string{}, ever: map[uint64]string{}}
	for n := range uint64(40) {
		if n == 20 {
			commit(t, s, localengine.AccountSaved{Name: "check"})
		}
		text := fmt.Sprintf("%d.%s", n, strings.Repeat("y", int(n*n*n)%3000))
		k.texts[n+1], k.ever[n+1] = text, text
		commit(t, s, added(n+1, text))
		if n%3 == 2 {
			commit(t, s, localengine.MessageRemoved(key(n)), localengine.MessagesUpdated{added(n+1, "").MessageState})
			delete(k.texts, n)
		}
	}
	text := "the last " + strings.Repeat("z", 3000)
	k.texts[0], k.ever[0] = text, text
	commit(t, s, added(0, text))
	s.abandon(t)
	k.files = killedAt(t, dir).files
	return k
}

// killedAt returns the state of an abandoned directory, whatever its texts.
func killedAt(t testing.TB, dir string) killed {
	t.Helper()
	k := killed{files: map[string][]byte{}}
	for _, name := range []string{fileName, logName + "-1", logName + "-2"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		k.files[name] = b
	}
	return k
}

// newestLog returns the name of the active log and the position of its last record.
func (k killed) newestLog(t testing.TB) (name string, at int) {
	t.Helper()
	for name, b := range k.files {
		if at := bytes.LastIndex(b, []byte("the last ")); name != fileName && at >= 0 {
			return name, at / sector * sector
		}
	}
	t.Fatal("no log has the last record")
	return "", 0
}

// with returns the directory with other files.
func (k killed) with(t tester, changed map[string][]byte) (dir string, remove func()) {
	t.Helper()
	dir, remove = scratch(t)
	for name, b := range k.files {
		if other, is := changed[name]; is {
			b = other
		}
		if b == nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, remove
}

// found opens the directory twice. The first time it may be damaged, but must not have an unknown
// text. The second time it must be sound and have the same texts.
func (k killed) found(t tester, changed map[string][]byte) (Found, map[uint64]string) {
	t.Helper()
	dir, remove := k.with(t, changed)
	defer remove()
	found, texts := reopenedTexts(t, dir)
	for n, text := range texts {
		if k.ever != nil && text != k.ever[n] {
			t.Fatalf("message %d: got the unknown text %.40q", n, text)
		}
	}
	again, same := reopenedTexts(t, dir)
	if again.Damaged > 0 || again.Torn && !found.Torn || !maps.Equal(texts, same) {
		t.Fatalf("opened again: got %+v and %d messages, want no damage and %d; first: %+v", again, len(same), len(texts), found)
	}
	return found, texts
}

// TestDamageToALogIsReported: no durable commit is lost silently, and later ones are kept.
func TestDamageToALogIsReported(t *testing.T) {
	if testing.Short() {
		t.Skip("a sweep over positions")
	}
	k := killedSample(t)
	name, last := k.newestLog(t)
	rapid.Check(t, func(t *rapid.T) {
		b := slices.Clone(k.files[name])
		for range rapid.IntRange(1, 5).Draw(t, "bytes") {
			b[rapid.IntRange(0, last-1).Draw(t, "at")] ^= rapid.ByteRange(1, 255).Draw(t, "by")
		}
		found, texts := k.found(t, map[string][]byte{name: b})
		if len(texts) < len(k.texts) && found.Damaged == 0 {
			t.Fatalf("got %d of %d messages and no damage, want damage reported", len(texts), len(k.texts))
		}
		if texts[0] == "" {
			t.Fatal("the last message is lost although its record was not damaged")
		}
	})
}

func TestAMissingLogIsReported(t *testing.T) {
	k := killedSample(t)
	for name := range k.files {
		if name == fileName {
			continue
		}
		found, _ := k.found(t, map[string][]byte{name: nil})
		if found.Damaged == 0 {
			t.Errorf("without %s: got no damage, want damage reported", name)
		}
	}
}

// TestAKillBeforeTheLogsExistLosesNothing: a process was killed after it had created the tree.
func TestAKillBeforeTheLogsExistLosesNothing(t *testing.T) {
	dir := memoryDirectory(t)
	d, err := openDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := &store{dir: d, snapshot: newSnapshot()}
	if err := errors.Join(s.rebuild(nil), d.close()); err != nil {
		t.Fatal(err)
	}
	if found, _ := reopenedTexts(t, dir); found.Damaged > 0 {
		t.Errorf("damage: got %v, want none", found.Damage)
	}
}

// TestADamagedTreeFallsBackToTheCommitBefore: the previous commit and the logs have everything.
func TestADamagedTreeFallsBackToTheCommitBefore(t *testing.T) {
	k := killedSample(t)
	size := os.Getpagesize()
	newest := int(commitOf(t, k.files[fileName]).Meta.Slot) * size
	tree := slices.Clone(k.files[fileName])
	clear(tree[newest : newest+size])
	found, texts := k.found(t, map[string][]byte{fileName: tree})
	if found.Damaged == 0 || !maps.Equal(texts, k.texts) {
		t.Errorf("got %+v and %d messages, want %d", found, len(texts), len(k.texts))
	}
}

func TestATextIsNeverReadAsARecord(t *testing.T) {
	dir := memoryDirectory(t)
	s := begun(t, dir)
	to := s.logs[s.active]
	forger := wal{name: to.name} // without the salt
	fields := appendChanges(make([]byte, recordHeader), []localengine.Change{added(99, "forged")})
	forger.writeHeader(fields, to.end+sector, s.number+2, uint32(len(fields)-recordHeader))
	text := strings.Repeat("x", sector-recordHeader-1-keySize-2*8-stateSize-8) + string(fields)
	commit(t, s, added(1, text))
	s.abandon(t)
	b, err := os.ReadFile(filepath.Join(dir, to.name))
	if err != nil || bytes.Index(b, fields)%sector != 0 {
		t.Fatalf("position of the forged record: got %d, want the beginning of a sector, %v", bytes.Index(b, fields), err)
	}
	clear(b[sector : 2*sector]) // the real one is torn
	if err := os.WriteFile(filepath.Join(dir, to.name), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, texts := reopenedTexts(t, dir); len(texts) != 0 {
		t.Errorf("messages after the replay: got %d, want 0", len(texts))
	}
}

func TestTheTreeIsWrittenWhenTheLogCannotBe(t *testing.T) {
	dir := memoryDirectory(t)
	s := begun(t, dir)
	commit(t, s, added(1, "logged"))
	for _, l := range s.logs {
		if err := l.file.Close(); err != nil {
			t.Fatal(err)
		}
		var err error
		if l.file, err = os.Open(filepath.Join(dir, l.name)); err != nil { // to read
			t.Fatal(err)
		}
	}
	before := treeCommits(t, s)
	commit(t, s, added(2, "in the tree"))
	if got := treeCommits(t, s) - before; got != 1 {
		t.Errorf("commits to the tree: got %d, want 1", got)
	}
	s.abandon(t)
	if found, texts := reopenedTexts(t, dir); found.Damaged > 0 || len(texts) != 2 {
		t.Errorf("opened again: got %+v and the texts %v, want no damage and 2 texts", found, texts)
	}
}

// TestAFailedAppendIsNotReplayed: a record is not a commit if the wait for the disk failed.
func TestAFailedAppendIsNotReplayed(t *testing.T) {
	l := newLog(t)
	whole := func() (n int) {
		t.Helper()
		r, err := l.read()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.entries {
			if f.kind == completeRecord {
				n++
			}
		}
		return n
	}
	for number := range uint64(2) {
		if _, err := l.append(number+1, appendChanges(make([]byte, recordHeader), []localengine.Change{added(1, "text")})); err != nil {
			t.Fatal(err)
		}
	}
	l.end -= sector // as after an error
	before := whole()
	if err := l.writeEndMark(1); err != nil || before != 2 || whole() != 1 {
		t.Errorf("records: got %d before and %d after, %v; want 2 and 1", before, whole(), err)
	}
	r, err := l.read()
	if err != nil || r.tail(1, l.end) != tailIntact {
		t.Errorf("tail: got %v, %v; want an intact one", r.tail(1, l.end), err)
	}
}

// newLog returns an empty log, which the test's end closes.
func newLog(t testing.TB) *wal {
	t.Helper()
	d, err := openDirectory(memoryDirectory(t))
	if err != nil {
		t.Fatal(err)
	}
	l, err := openWAL(d, 1, logSize, os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(l.file.Close(), d.close()); err != nil {
			t.Error(err)
		}
	})
	return l
}

func TestRecordsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var changes, want []localengine.Change
		state := func() localengine.MessageState {
			n := rapid.Uint64()
			return localengine.MessageState{
				MessageKey: localengine.MessageKey{Queue: n.Draw(t, "queue"), Sequence: n.Draw(t, "sequence")},
				Inserted:   rapid.Int64().Draw(t, "inserted"), Expires: rapid.Int64().Draw(t, "expires"), Due: rapid.Int64().Draw(t, "due"),
				Dequeues: rapid.Int64().Draw(t, "dequeues"), Receipt: n.Draw(t, "receipt"),
			}
		}
		for range rapid.IntRange(0, 5).Draw(t, "n") {
			m, text := state(), rapid.String().Draw(t, "text")
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0:
				changes, want = append(changes, localengine.MessageAdded{MessageState: m, Text: text}), append(want, localengine.MessageAdded{MessageState: m, Text: text})
			case 1:
				changes, want = append(changes, localengine.MessageRewritten{MessageState: m, Text: text}), append(want, localengine.MessageRewritten{MessageState: m, Text: text})
			case 2: // an update has neither insertion nor expiry
				m.Inserted, m.Expires = 0, 0
				other := m
				other.Sequence++
				changes = append(changes, localengine.MessagesUpdated{m, other})
				want = append(want, localengine.MessagesUpdated{m}, localengine.MessagesUpdated{other})
			case 3:
				changes, want = append(changes, localengine.MessageRemoved(m.MessageKey)), append(want, localengine.MessageRemoved(m.MessageKey))
			case 4:
				changes = append(changes, localengine.MessagesExpired{m.MessageKey, {}})
				want = append(want, localengine.MessageRemoved(m.MessageKey), localengine.MessageRemoved{})
			case 5:
				changes, want = append(changes, localengine.CommittedAt(m.Due)), append(want, localengine.CommittedAt(m.Due))
			}
		}
		got, err := readChanges(appendChanges(nil, changes))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("changes read: got %v, %v; want %v", got, err, changes)
		}
	})
}

// FuzzReplay opens directories with arbitrary logs.
func FuzzReplay(f *testing.F) {
	k := killedSample(f)
	name, _ := k.newestLog(f)
	f.Add([]byte{}, uint32(0))
	f.Add([]byte{0, 2, 8, 1}, uint32(0))
	f.Add([]byte{}, uint32(700))
	f.Fuzz(func(t *testing.T, patches []byte, less uint32) {
		b := patched(k.files[name], patches)
		found, texts := k.found(t, map[string][]byte{name: b[:len(b)-int(less)%len(b)]})
		if found.Damaged == 0 && !found.Torn && !maps.Equal(texts, k.texts) {
			t.Fatalf("got %d messages, want %d, and no damage reported", len(texts), len(k.texts))
		}
	})
}

// FuzzReadChanges parses arbitrary fields of a record.
func FuzzReadChanges(f *testing.F) {
	f.Add(appendChanges(nil, []localengine.Change{added(1, "text"), localengine.MessagesUpdated{added(1, "").MessageState}, localengine.MessageRemoved(key(1)), localengine.CommittedAt(7)}))
	f.Fuzz(func(t *testing.T, b []byte) {
		changes, err := readChanges(b)
		if err == nil && !bytes.Equal(appendChanges(nil, changes), b) {
			t.Errorf("changes of %x: got %v, which are written differently", b, changes)
		}
	})
}
