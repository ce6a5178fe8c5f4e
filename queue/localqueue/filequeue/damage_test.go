package filequeue

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/queue"
)

// sample is a file to damage, with all texts that it ever had.
type sample struct {
	file  []byte
	texts map[string]bool
	depth int
}

// sampleFile makes the sample once; every damaged file is a copy of it.
var sampleFile = sync.OnceValues(func() (sample, error) {
	dir, err := os.MkdirTemp("", "filequeue-sample")
	if err != nil {
		return sample{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := openStore(dir)
	if err != nil {
		return sample{}, err
	}
	e, err := engineOver(s, nil)
	if err != nil {
		return sample{}, err
	}
	made := sample{texts: map[string]bool{}}
	for i := range 3 {
		if err := made.fill(e.Queue(queue.Name{Account: account, Queue: fmt.Sprintf("queue-%d", i)}), i); err != nil {
			return sample{}, err
		}
	}
	if err := e.Close(); err != nil {
		return sample{}, err
	}
	made.file, err = os.ReadFile(filepath.Join(dir, fileName))
	return made, err
})

// fill adds messages of all sizes, some of them dequeued, some rewritten.
func (s *sample) fill(q queue.Manager, n int) error {
	ctx := context.Background()
	if err := q.Create(ctx, map[string]string{"kind": "sample"}); err != nil {
		return err
	}
	for i := range 20 {
		text := fmt.Sprintf("%d.%d %s", n, i, strings.Repeat("x", i*i*i%7000))
		if _, err := q.Enqueue(ctx, text, &queue.EnqueueOptions{TTL: queue.Forever}); err != nil {
			return err
		}
		s.texts[text] = true
	}
	batch, err := q.Dequeue(ctx, 9, time.Hour)
	if err != nil {
		return err
	}
	for i, m := range batch {
		text := "rewritten " + m.Text
		switch i % 3 {
		case 0:
			err = q.Delete(ctx, m.Lease)
		case 1:
			_, err = q.Update(ctx, m.Lease, text, 0)
			s.texts[text] = true
		}
		if err != nil {
			return err
		}
	}
	s.depth += 17
	return nil
}

func sampled(t testing.TB) sample {
	t.Helper()
	s, err := sampleFile()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tester is a [testing.T] or a [rapid.T].
type tester interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// inspectDamaged opens a directory with a damaged file. Either Open refuses it, or it reports the
// damage and serves only texts of the sample, and a second Open finds no damage. It returns what
// Open found, or its error.
func inspectDamaged(t tester, file []byte, texts map[string]bool) (Found, error) {
	t.Helper()
	dir, remove := scratch(t)
	defer remove()
	return inspectDamagedIn(t, dir, file, texts)
}

// inspectDamagedIn is inspectDamaged in a directory that may have been used before, whose reserve
// is then not written again.
func inspectDamagedIn(t tester, dir string, file []byte, texts map[string]bool) (Found, error) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(dir, "queues.*"))
	for _, name := range left {
		err = errors.Join(err, os.Remove(name))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, fileName), file, 0o600); err != nil {
		t.Fatal(err)
	}
	first, served, err := serveAll(t, dir, texts)
	if err != nil {
		if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewer) {
			t.Fatalf("Open: got %v, want ErrCorrupt or ErrNewer", err)
		}
		if left, err := os.ReadFile(filepath.Join(dir, fileName)); err != nil || !slices.Equal(left, file) {
			t.Fatal("Open refused the file and changed it")
		}
		return first, err
	}
	if first.Copy != "" {
		if kept, err := os.ReadFile(first.Copy); err != nil || !slices.Equal(kept, file) {
			t.Fatalf("the copy differs from the original file: %v", err)
		}
	}
	second, again, err := serveAll(t, dir, texts)
	if err != nil || second.Damaged > 0 {
		t.Fatalf("second Open: got %v and the damage %v, want none; first: %v", err, second.Damage, first.Damage)
	}
	if !slices.Equal(served, again) {
		t.Fatalf("second Open: got %d messages, want %d as before", len(again), len(served))
	}
	return first, nil
}

// serveAll opens a directory and reads every message with an engine.
func serveAll(t tester, dir string, texts map[string]bool) (Found, []string, error) {
	t.Helper()
	s, err := openStore(dir)
	if err != nil {
		return Found{}, nil, err
	}
	saved, view := loaded(t, s)
	var served []string
	all := map[localengine.MessageKey]string{}
	for m := range saved.Messages {
		text, err := view.Text(m.MessageKey)
		if err != nil || !texts[text] {
			t.Fatalf("served text: got %.40q, %v; want one of the sample", text, err)
		}
		served = append(served, text)
		all[m.MessageKey] = text
	}
	view.Close()
	// Commits to every part of the tree succeed and do not affect the messages.
	key := localengine.MessageKey{Queue: saved.Ordinal + 1, Sequence: 1}
	name := queue.Name{Account: account, Queue: "another"}
	var moved localengine.MessagesUpdated
	var rewritten []localengine.Change
	for m := range saved.Messages {
		moved = append(moved, m)
		rewritten = append(rewritten, localengine.MessageRewritten{MessageState: m, Text: all[m.MessageKey]})
	}
	many := []localengine.Change{localengine.MessageQuarantined(key)}
	for n := range uint64(300) {
		many = append(many, localengine.MessageAdded{MessageState: localengine.MessageState{MessageKey: localengine.MessageKey{Queue: key.Queue, Sequence: n + 2}}, Text: text})
	}
	for _, c := range [][]localengine.Change{
		{localengine.QueueSaved{Ordinal: key.Queue, Name: name}, localengine.AccountSaved{Name: "another"},
			localengine.MessageAdded{MessageState: localengine.MessageState{MessageKey: key}, Text: "new"}, moved},
		many,
		append(rewritten, localengine.QueueCleared{Queue: key.Queue, Sequence: 7}),
		{localengine.QueueDropped{Ordinal: key.Queue, Deleting: localengine.DeletingName{Name: name, Until: 1}}}, {}, {}, {},
	} {
		if _, err := s.Commit(c); err != nil {
			t.Fatal(err)
		}
	}
	found := s.Found()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return found, served, nil
}

// patched returns the file with bytes replaced: each patch is a big-endian offset of three bytes,
// and the value.
func patched(file, patches []byte) []byte {
	file = slices.Clone(file)
	for ; len(patches) >= 4; patches = patches[4:] {
		at := binary.BigEndian.Uint32([]byte{0, patches[0], patches[1], patches[2]})
		file[int(at)%len(file)] = patches[3]
	}
	return file
}

func TestAnUndamagedFileHasNoDamage(t *testing.T) {
	if testing.Short() {
		t.Skip("a sweep over files")
	}
	s := sampled(t)
	found, err := inspectDamaged(t, s.file, s.texts)
	if err != nil || found.Damaged > 0 || found.Messages != s.depth || found.Queues != 3 || found.Copy != "" {
		t.Errorf("found %+v, %v; want %d messages of 3 queues", found, err, s.depth)
	}
}

// TestRandomDamageIsReported damages files at random, as disks do.
func TestRandomDamageIsReported(t *testing.T) {
	if testing.Short() {
		t.Skip("a sweep over positions")
	}
	s := sampled(t)
	page := os.Getpagesize()
	dir := memoryDirectory(t)
	rapid.Check(t, func(t *rapid.T) {
		file := slices.Clone(s.file)
		switch rapid.SampledFrom([]string{"cut", "flip", "zero", "repeat", "tail"}).Draw(t, "how") {
		case "cut":
			file = file[:rapid.IntRange(0, len(file)-1).Draw(t, "length")]
		case "flip":
			for range rapid.IntRange(1, 40).Draw(t, "bytes") {
				file[rapid.IntRange(0, len(file)-1).Draw(t, "at")] ^= rapid.ByteRange(1, 255).Draw(t, "by")
			}
		case "zero":
			at := rapid.IntRange(0, len(file)/page-1).Draw(t, "page") * page
			clear(file[at : at+page])
		case "repeat": // a write that went to the wrong place
			from := rapid.IntRange(0, len(file)/page-1).Draw(t, "from") * page
			to := rapid.IntRange(0, len(file)/page-1).Draw(t, "to") * page
			copy(file[to:to+page], s.file[from:])
		case "tail":
			clear(file[rapid.IntRange(0, len(file)).Draw(t, "from"):])
		}
		found, err := inspectDamagedIn(t, dir, file, s.texts)
		if err == nil && found.Messages < s.depth && found.Damaged == 0 {
			t.Fatalf("got %d of %d messages and no damage, want damage reported", found.Messages, s.depth)
		}
	})
}

// TestAZeroedPageIsReported zeroes one page after the other.
func TestAZeroedPageIsReported(t *testing.T) {
	if testing.Short() {
		t.Skip("a sweep over pages")
	}
	s := sampled(t)
	page, dir := os.Getpagesize(), memoryDirectory(t)
	for at := 0; at < len(s.file); at += page {
		file := slices.Clone(s.file)
		clear(file[at:min(at+page, len(file))])
		found, err := inspectDamagedIn(t, dir, file, s.texts)
		if err != nil {
			t.Errorf("page %d: %v", at/page, err)
		} else if found.Messages < s.depth && found.Damaged == 0 {
			t.Errorf("page %d: got %d messages without damage, want damage reported", at/page, found.Messages)
		}
	}
}

func TestAFileWithoutMetaPagesIsRefused(t *testing.T) {
	s := sampled(t)
	file := slices.Clone(s.file)
	clear(file[:2*os.Getpagesize()])
	if _, err := inspectDamaged(t, file, s.texts); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
}

// TestADamagedRecordIsQuarantined: the other records of its page are served.
func TestADamagedRecordIsQuarantined(t *testing.T) {
	s := sampled(t)
	at := strings.Index(string(s.file), "2.19 xxx")
	file := slices.Clone(s.file)
	for i := 0; at >= 0 && i < len(file)-8; i++ { // an older page may contain it too
		if string(file[i:i+8]) == "2.19 xxx" {
			file[i+5] = 'y'
		}
	}
	found, err := inspectDamaged(t, file, s.texts)
	if err != nil || found.Messages != s.depth-1 || found.Damaged == 0 || found.Quarantined != 1 {
		t.Errorf("Open: got %+v, %v; want %d messages and one quarantined", found, err, s.depth-1)
	}
	if d := found.Damage[0]; !strings.HasPrefix(d, "queue test/queue-2, message 20: ") {
		t.Errorf("damage %v, want message 20 of queue-2", d)
	}
}

func TestAForeignFileIsRefused(t *testing.T) {
	for name, file := range map[string][]byte{"empty": nil, "text": []byte("not a database\n"), "zeros": make([]byte, 1<<16)} {
		if _, err := inspectDamaged(t, file, nil); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: got %v, want ErrCorrupt", name, err)
		}
	}
}

// FuzzOpen opens files that were patched and truncated.
func FuzzOpen(f *testing.F) {
	s, err := sampleFile()
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{}, uint32(0))
	f.Add([]byte{0, 0, 16, 0}, uint32(0))
	f.Add([]byte{}, uint32(5000))
	for i := range 8 { // page headers, where damage has most effect
		patch := binary.BigEndian.AppendUint32(nil, uint32((rand.IntN(len(s.file)/4096)*4096+i*2)<<8)|uint32(i*37))
		f.Add(patch, uint32(0))
	}
	dir := memoryDirectory(f)
	f.Fuzz(func(t *testing.T, patches []byte, less uint32) {
		file := patched(s.file, patches)
		file = file[:len(file)-int(less)%len(file)]
		found, err := inspectDamagedIn(t, dir, file, s.texts)
		if err == nil && found.Damaged == 0 && (found.Messages != s.depth || found.Queues != 3) {
			t.Fatalf("got %d messages of %d queues and no damage, want damage reported", found.Messages, found.Queues)
		}
	})
}
