package filequeue

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/localengine"
)

var trials = flag.Int("trials", 150, "number of logs that TestRandomDamageToLogsIsReported damages; a tenth with -short")

// busySample returns a directory after a kill, with 200 acknowledged puts and 60 deletes that are
// only in the log.
func busySample(t testing.TB) killed {
	t.Helper()
	dir := memoryDirectory(t)
	s := begun(t, dir)
	k := killed{texts: map[uint64]string{}, ever: map[uint64]string{}}
	for n := uint64(1); n <= 200; n++ {
		k.texts[n] = fmt.Sprintf("message %d %x", n, rand.NewPCG(n, n).Uint64())
		k.ever[n] = k.texts[n]
		commit(t, s, added(n, k.texts[n]))
		if n%3 == 0 && n <= 180 {
			commit(t, s, localengine.MessageRemoved(key(n/2)))
			delete(k.texts, n/2)
		}
	}
	s.abandon(t)
	k.files = killedAt(t, dir).files
	return k
}

// busyLog returns the name of the active log and the end of its content, including the end
// mark.
func (k killed) busyLog(t testing.TB) (name string, end int) {
	t.Helper()
	for name, b := range k.files {
		if name == fileName {
			continue
		}
		if at := bytes.Index(b, []byte(k.texts[200])); at >= 0 {
			return name, at/sector*sector + 2*sector
		}
	}
	t.Fatal("no log has the last record")
	return "", 0
}

// reopened opens dir with the given files in place of its own, and returns what was found.
// It reuses dir, because that has its reserve already.
func (k killed) reopened(t tester, dir string, changed map[string][]byte) (Found, map[uint64]string) {
	t.Helper()
	for name, b := range k.files {
		if other, is := changed[name]; is {
			b = other
		}
		path := filepath.Join(dir, name)
		if b == nil {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return reopenedTexts(t, dir)
}

// TestATornRecordIsReportedAsTorn: it is unknown whether an interrupted commit was
// acknowledged. All commits before it are there.
func TestATornRecordIsReportedAsTorn(t *testing.T) {
	if testing.Short() {
		t.Skip("a sweep over positions")
	}
	k := killedSample(t)
	name, at := k.newestLog(t)
	without := maps.Clone(k.texts)
	delete(without, 0)
	for end := at + sector; end < at+3000; end += sector / 2 {
		torn := slices.Clone(k.files[name])
		clear(torn[end:])
		found, texts := k.found(t, map[string][]byte{name: torn})
		if found.Damaged > 0 || !found.Torn || !maps.Equal(texts, without) {
			t.Errorf("torn after %d bytes: got %+v and %d messages, want torn and %d", end-at, found, len(texts), len(without))
		}
		found, texts = k.found(t, map[string][]byte{name: torn[:end]})
		if found.Damaged > 0 || !found.Torn || !maps.Equal(texts, without) {
			t.Errorf("truncated after %d bytes: got %+v and %d messages, want torn and %d", end-at, found, len(texts), len(without))
		}
	}
	if found, texts := k.found(t, nil); found.Damaged > 0 || found.Torn || !maps.Equal(texts, k.texts) {
		t.Errorf("unchanged log: got %+v and %d messages, want %d", found, len(texts), len(k.texts))
	}
}

// TestAMissingEndMarkIsReportedAsTorn: a commit whose end mark did not reach the disk is recovered,
// and later ones may be missing.
func TestAMissingEndMarkIsReportedAsTorn(t *testing.T) {
	k := killedSample(t)
	name, at := k.newestLog(t)
	b := slices.Clone(k.files[name])
	mark := at + (recordHeader+len(appendChanges(nil, []localengine.Change{added(0, k.texts[0])}))+sector-1)/sector*sector
	copy(b[mark:], k.files[name][mark+sector:mark+2*sector]) // the previous content
	if found, texts := k.found(t, map[string][]byte{name: b}); found.Damaged > 0 || !found.Torn || !maps.Equal(texts, k.texts) {
		t.Errorf("found %+v and %d messages, want %d", found, len(texts), len(k.texts))
	}
}

// TestAMisplacedRecordIsReported: a record in place of the first one of a log is invalid,
// even if it would be valid in its own place or in the other log. Otherwise that log would
// seem empty.
func TestAMisplacedRecordIsReported(t *testing.T) {
	dir := memoryDirectory(t)
	s := begun(t, dir)
	for n := range uint64(30) {
		commit(t, s, added(n, "text"))
		if n == 19 || n == 28 {
			commit(t, s, localengine.AccountSaved{Name: "check"})
		}
	}
	active, other := s.logs[s.active].name, s.logs[1-s.active].name
	s.abandon(t)
	k := killedAt(t, dir)
	for what, older := range map[string][]byte{
		"of the same log":  k.files[active][6*sector:],
		"of the other log": k.files[other][sector:],
	} {
		b := slices.Clone(k.files[active])
		copy(b[sector:2*sector], older)
		if bytes.Equal(b, k.files[active]) {
			t.Errorf("%s: the record is the same", what)
		}
		if found, _ := k.found(t, map[string][]byte{active: b}); found.Damaged == 0 {
			t.Errorf("%s: got %+v, want damage", what, found)
		}
	}
}

// TestDamageAtTheEndOfALogIsReported damages it unlike any interrupted commit.
func TestDamageAtTheEndOfALogIsReported(t *testing.T) {
	k := killedSample(t)
	name, last := k.newestLog(t)
	whole := k.files[name]
	for what, at := range map[string][]int{
		"the header of the last record":           {last},
		"the last two records, after the headers": {last - sector + 100, last + 100},
	} {
		b := slices.Clone(whole)
		for _, at := range at {
			b[at] ^= 4
		}
		if found, _ := k.found(t, map[string][]byte{name: b}); found.Damaged == 0 || found.Torn {
			t.Errorf("%s: got %+v, want damage and no torn log", what, found)
		}
	}
}

// TestDamageToAnEmptyLogIsReported: after a checkpoint, it is unknown whether there was a
// first record.
func TestDamageToAnEmptyLogIsReported(t *testing.T) {
	dir := memoryDirectory(t)
	s := begun(t, dir)
	commit(t, s, added(1, "text"))
	commit(t, s, localengine.AccountSaved{Name: "check"})
	s.abandon(t)
	k := killedAt(t, dir)
	for n := range 2 {
		name := fmt.Sprintf("%s-%d", logName, n+1)
		b := slices.Clone(k.files[name])
		b[sector+3] ^= 1
		if found, texts := k.found(t, map[string][]byte{name: b}); found.Damaged == 0 || len(texts) != 1 {
			t.Errorf("%s: got %+v and %d messages, want damage and 1 message", name, found, len(texts))
		}
	}
}

// TestATruncatedLogIsReported: of 200 acknowledged puts the truncated log has a few.
func TestATruncatedLogIsReported(t *testing.T) {
	k := busySample(t)
	name, end := k.busyLog(t)
	whole := k.files[name]
	zeroed := slices.Clone(whole)
	clear(zeroed[(end-1)/4096*4096:][:4096])
	for what, b := range map[string][]byte{
		"cut to nothing":             {},
		"cut to 8 KiB":               whole[:8<<10],
		"cut before the last record": whole[:end-2*sector],
		"cut before the end mark":    whole[:end-sector],
		"its last page zeroed":       zeroed,
		"all zeros":                  make([]byte, len(whole)),
	} {
		found, texts := k.found(t, map[string][]byte{name: b})
		if found.Damaged == 0 {
			t.Errorf("%s: got %d of %d messages and no damage, want damage reported", what, len(texts), len(k.texts))
		}
	}
}

// TestDamageAtTheBeginningOfBothLogsIsReported: the records after it are kept.
func TestDamageAtTheBeginningOfBothLogsIsReported(t *testing.T) {
	k := busySample(t)
	changed := map[string][]byte{}
	for _, name := range []string{logName + "-1", logName + "-2"} {
		changed[name] = slices.Clone(k.files[name])
		clear(changed[name][sector : 2*sector])
	}
	found, texts := k.found(t, changed)
	if found.Damaged < 2 || len(texts) < len(k.texts)-1 {
		t.Errorf("found %+v and %d messages, want at least %d", found, len(texts), len(k.texts)-1)
	}
}

// TestATornWriteIsNoDamage leaves random sectors of the last write on disk, as a power cut may: all
// acknowledged commits must be recovered, and no damage reported.
func TestATornWriteIsNoDamage(t *testing.T) {
	dir := memoryDirectory(t)
	s := begun(t, dir)
	read := func() (b []byte) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, s.logs[s.active].name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	acknowledged := map[uint64]string{}
	for n := range uint64(45) { // so that the log has been overwritten
		acknowledged[n] = strings.Repeat("a", int(n*97)%3000)
		commit(t, s, added(n, acknowledged[n]))
		if n%20 == 19 {
			commit(t, s, localengine.AccountSaved{Name: "check"})
		}
	}
	before := read()
	last := strings.Repeat("b", 3000)
	commit(t, s, added(100, last))
	after := read()
	name := s.logs[s.active].name
	s.abandon(t)
	k := killedAt(t, dir)
	random := rand.New(rand.NewPCG(7, 7))
	scratch, remove := scratch(t)
	defer remove()
	trials := 300
	if testing.Short() {
		trials = 10
	}
	for trial := range trials {
		b := slices.Clone(before)
		whole := true
		for at := 0; at < len(b); at += sector {
			if arrived := random.IntN(2) == 0; arrived {
				copy(b[at:at+sector], after[at:])
			} else if !bytes.Equal(before[at:at+sector], after[at:at+sector]) {
				whole = false
			}
		}
		found, texts := k.reopened(t, scratch, map[string][]byte{name: b})
		if texts[100] == last {
			delete(texts, 100)
		} else if whole {
			t.Errorf("trial %d: the last write arrived completely, but is not recovered", trial)
		}
		if found.Damaged > 0 || !maps.Equal(texts, acknowledged) {
			t.Fatalf("trial %d: %+v and %d messages, want %d", trial, found, len(texts), len(acknowledged))
		}
	}
}

// TestRandomDamageToLogsIsReported truncates logs, zeroes pages and flips bits. Messages that are
// then missing or restored must be reported, and never as unacknowledged.
func TestRandomDamageToLogsIsReported(t *testing.T) {
	k := busySample(t)
	name, end := k.busyLog(t)
	random := rand.New(rand.NewPCG(6, 6))
	dir, remove := scratch(t)
	defer remove()
	lost, harmless, torn, unnoticed, tries := 0, 0, 0, 0, *trials
	if testing.Short() {
		tries /= 10
	}
	for trial := range tries {
		b := slices.Clone(k.files[name])
		what := damageLog(random, &b, end)
		found, texts := k.reopened(t, dir, map[string][]byte{name: b})
		differs := !maps.Equal(texts, k.texts)
		switch reported := found.Damaged > 0 || found.Torn; {
		case differs && !reported:
			t.Fatalf("trial %d, %s: got %d messages, want %d, and no damage reported", trial, what, len(texts), len(k.texts))
		case differs && found.Torn:
			lost, torn = lost+1, torn+1
		case differs:
			lost++
		case reported:
			harmless++
		default:
			unnoticed++
		}
		for n, text := range texts {
			if text != k.ever[n] {
				t.Fatalf("trial %d, %s: message %d: got %q, want %q", trial, what, n, text, k.ever[n])
			}
		}
		if again, same := reopenedTexts(t, dir); again.Damaged > 0 || again.Torn || !maps.Equal(texts, same) {
			t.Fatalf("trial %d, %s: opened again: %+v and %d messages; at first %+v and %d", trial, what, again, len(same), found, len(texts))
		}
	}
	t.Logf("%d damaged logs: %d with missing or restored messages, all reported, %d of them as torn; %d reported without a difference, %d without a report", tries, lost, torn, harmless, unnoticed)
	if lost == 0 {
		t.Error("no damage had an effect")
	}
}

// damageLog damages a log within its content.
func damageLog(random *rand.Rand, b *[]byte, end int) string {
	at := random.IntN(end)
	switch random.IntN(5) {
	case 0:
		*b = (*b)[:at]
		return fmt.Sprintf("cut to %d of %d bytes", at, end)
	case 1:
		at = at / 4096 * 4096
		clear((*b)[at:min(at+4096, len(*b))])
		return fmt.Sprintf("the page at %d zeroed", at)
	case 2:
		clear((*b)[at:])
		return fmt.Sprintf("all from %d zeroed", at)
	case 3:
		(*b)[at] ^= 1 << random.IntN(8)
		return fmt.Sprintf("a bit flipped in byte %d", at)
	default:
		at = max(0, end-1-random.IntN(4*sector))
		(*b)[at] ^= 1 << random.IntN(8)
		return fmt.Sprintf("a bit flipped in byte %d, near the end", at)
	}
}
