package filequeue

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// specimen is a file as a kill leaves it, and the texts that are in it by queue.
type specimen struct {
	file  []byte
	texts map[string][]string
	ever  map[string]bool // all texts that there were
}

// newSpecimen makes one with short and long texts, messages that were dequeued,
// rewritten and deleted, a queue that was cleared and one that was dropped.
func newSpecimen(t testing.TB) specimen {
	t.Helper()
	dir := memoryDirectory(t)
	e := opened(t, dir)
	s := specimen{texts: map[string][]string{}, ever: map[string]bool{}}
	for n := range 600 {
		q := made(t, e, fmt.Sprint("queue-", n%7))
		name := q.Name().Queue
		text := fmt.Sprintf("%s message %d %s", name, n, strings.Repeat("x", n*37%3000))
		s.ever[text] = true
		m, err := q.Enqueue(t.Context(), text, nil)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case n%5 == 0:
			err = q.Delete(t.Context(), m.Lease)
			text = ""
		case n%11 == 0:
			text += " rewritten"
			s.ever[text] = true
			_, err = q.Update(t.Context(), m.Lease, text, 0)
		case n%13 == 0:
			err = dequeued(t, q)
		}
		if err != nil {
			t.Fatal(err)
		}
		if text != "" {
			s.texts[name] = append(s.texts[name], text)
		}
	}
	if err := made(t, e, "queue-5").Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := made(t, e, "queue-6").Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	delete(s.texts, "queue-5")
	delete(s.texts, "queue-6")
	closed(t, e)
	var err error
	if s.file, err = os.ReadFile(filepath.Join(dir, fileName)); err != nil {
		t.Fatal(err)
	}
	return s
}

// dequeued dequeues some messages and lets others have them at once.
func dequeued(t testing.TB, q *localqueue.Queue) error {
	batch, err := q.Dequeue(t.Context(), 3, time.Minute)
	for _, m := range batch {
		if _, err := q.Extend(t.Context(), m.Lease, 0); err != nil {
			return err
		}
	}
	return err
}

func (s specimen) all() int {
	n := 0
	for _, texts := range s.texts {
		n += len(texts)
	}
	return n
}

// opens opens a damaged copy and looks at everything in it: nothing that is served was
// made up, what is missing was reported, and afterwards all is well. It returns how many
// messages are served.
func (s specimen) opens(t testing.TB, file []byte) (served int, found Found) {
	t.Helper()
	dir := memoryDirectory(t)
	if err := os.WriteFile(filepath.Join(dir, fileName), file, 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := Open(dir)
	if err != nil {
		if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewer) {
			t.Errorf("it is refused without a reason: %v", err)
		}
		return -1, Found{}
	}
	found = store.Found()
	e := over(t, store)
	page, err := e.List(t.Context(), account, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, listed := range page.Queues {
		texts := drained(t, e.Queue(queue.Name{Account: account, Queue: listed.Name}))
		served += len(texts)
		for _, text := range texts {
			if !s.ever[text] || !strings.HasPrefix(text, listed.Name) {
				t.Errorf("%s serves %.60q", listed.Name, text)
			}
		}
		if slices.Sort(texts); found.Damaged == 0 && !slices.Equal(texts, slices.Sorted(slices.Values(s.texts[listed.Name]))) {
			t.Errorf("%s serves others than it should, and no damage is told", listed.Name)
		}
	}
	if served != s.all() && found.Damaged == 0 {
		t.Errorf("%d messages are served, not %d, and no damage is told", served, s.all())
	}
	closed(t, e)
	again, err := Open(dir)
	if err != nil {
		t.Errorf("it opens once, and then: %v", err)
		return served, found
	}
	if found := again.Found(); found.Damaged > 0 {
		t.Errorf("after it was mended: %v", found.Damage)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	return served, found
}

func TestAWholeFileHasNoDamage(t *testing.T) {
	s := newSpecimen(t)
	if served, found := s.opens(t, s.file); served != s.all() || found.Damaged != 0 || found.Messages != served || found.Queues != len(s.texts)+1 {
		t.Errorf("%d of %d messages are served; found %+v", served, s.all(), found)
	}
}

// TestDamageIsFoundAndSurvived damages copies of a file in every way that disks do, by
// a seed. What is not damaged is still served, and nothing goes missing in silence.
func TestDamageIsFoundAndSurvived(t *testing.T) {
	s := newSpecimen(t)
	page := os.Getpagesize()
	random := rand.New(rand.NewPCG(3, 4))
	pages := func() (from, to int) {
		from = random.IntN(len(s.file)/page) * page
		return from, from + page
	}
	ways := map[string]func(file []byte) []byte{
		"the end is missing": func(file []byte) []byte { return file[:random.IntN(len(file))] },
		"a bit is wrong": func(file []byte) []byte {
			file[random.IntN(len(file))] ^= 1 << random.IntN(8)
			return file
		},
		"many bytes are wrong": func(file []byte) []byte {
			for range 200 {
				file[random.IntN(len(file))] = byte(random.IntN(256))
			}
			return file
		},
		"a page is empty": func(file []byte) []byte {
			from, to := pages()
			clear(file[from:to])
			return file
		},
		"a page is another": func(file []byte) []byte {
			from, to := pages()
			other, end := pages()
			copy(file[from:to], file[other:end])
			return file
		},
		"the end is empty": func(file []byte) []byte {
			clear(file[random.IntN(len(file)):])
			return file
		},
		"a header is wrong": func(file []byte) []byte {
			from, _ := pages()
			file[from+random.IntN(48)] ^= 1 << random.IntN(8)
			return file
		},
	}
	for name, damage := range ways {
		t.Run(name, func(t *testing.T) {
			refused, some := 0, 0
			for range 40 {
				switch served, _ := s.opens(t, damage(slices.Clone(s.file))); {
				case served < 0:
					refused++
				case served > 0:
					some++
				}
				if t.Failed() {
					return
				}
			}
			t.Logf("of 40 files %d are refused, %d serve messages", refused, some)
			if some == 0 {
				t.Error("no damage is survived")
			}
		})
	}
}

// TestATornCommitIsTheOneBefore damages the newest meta page: what the commit before
// had is served, and it is said that the newest may be lost.
func TestATornCommitIsTheOneBefore(t *testing.T) {
	s := newSpecimen(t)
	torn := slices.Clone(s.file)
	newest := 0
	first, _ := readMeta(torn)
	if second, _ := readMeta(torn[first.pageSize:]); second.commit > first.commit {
		newest = int(first.pageSize)
	}
	clear(torn[newest+pageHeader : newest+pageHeader+8])
	served, found := s.opens(t, torn)
	if served < s.all()-1 || found.Damaged == 0 {
		t.Errorf("%d of %d messages are served, found %+v", served, s.all(), found)
	}
	both := slices.Clone(torn)
	clear(both[first.pageSize-uint32(newest):][:pageHeader+metaSize])
	if served, _ := s.opens(t, both); served >= 0 {
		t.Error("a file without meta pages opens")
	}
}

// FuzzOpen opens files that are damaged in the places that it is told.
func FuzzOpen(f *testing.F) {
	s := newSpecimen(f)
	f.Add(uint32(0), []byte{1, 2, 3})
	f.Add(uint32(4096), []byte{0})
	f.Fuzz(func(t *testing.T, at uint32, with []byte) {
		file := slices.Clone(s.file)
		copy(file[int(at)%len(file):], with)
		s.opens(t, file)
	})
}
