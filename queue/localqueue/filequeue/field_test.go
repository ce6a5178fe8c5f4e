package filequeue

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

var changedFields = flag.Int("fields", 300, "how many changed fields of pages TestEveryFieldOfAPage tries")

// field is a number in a file that bbolt takes at its word.
type field struct {
	what string
	at   int
	size int
}

func (f field) get(file []byte) uint64 {
	switch b := file[f.at:]; f.size {
	case 2:
		return uint64(binary.NativeEndian.Uint16(b))
	case 4:
		return uint64(binary.NativeEndian.Uint32(b))
	default:
		return binary.NativeEndian.Uint64(b)
	}
}

func (f field) set(file []byte, n uint64) {
	switch b := file[f.at:]; f.size {
	case 2:
		binary.NativeEndian.PutUint16(b, uint16(n))
	case 4:
		binary.NativeEndian.PutUint32(b, uint32(n))
	default:
		binary.NativeEndian.PutUint64(b, n)
	}
}

// pageFields finds the fields of a page that begins there, inline ones included.
func pageFields(file []byte, at int, where string) (found []field) {
	n := binary.NativeEndian
	found = append(found, field{where + " id", at, 8}, field{where + " flags", at + 8, 2}, field{where + " count", at + 10, 2}, field{where + " overflow", at + 12, 4})
	flags, count := n.Uint16(file[at+8:]), int(n.Uint16(file[at+10:]))
	for i := range count {
		e := at + pageHeader + i*elementSize
		switch what := fmt.Sprintf("%s entry %d", where, i); flags {
		case branchPage:
			found = append(found, field{what + " position", e, 4}, field{what + " key size", e + 4, 4}, field{what + " child", e + 8, 8})
		case leafPage:
			found = append(found, field{what + " flags", e, 4}, field{what + " position", e + 4, 4}, field{what + " key size", e + 8, 4}, field{what + " value size", e + 12, 4})
			if n.Uint32(file[e:]) != bucketFlag {
				continue
			}
			bucket := e + int(n.Uint32(file[e+4:])) + int(n.Uint32(file[e+8:]))
			found = append(found, field{what + " root", bucket, 8}, field{what + " sequence", bucket + 8, 8})
			if n.Uint64(file[bucket:]) == 0 {
				found = append(found, pageFields(file, bucket+bucketHeader, what+" inline")...)
			}
		}
	}
	return found
}

// TestEveryFieldOfAPage changes what bbolt takes at its word, one number at a time, on pages
// that are used and on such as are free. No file that is opened makes bbolt panic, then or at
// work, and none is opened without a word that lacks something.
func TestEveryFieldOfAPage(t *testing.T) {
	s := sampled(t)
	size := os.Getpagesize()
	var all []field
	for page := 2; page < len(s.file)/size; page++ {
		at := page * size
		if flags := binary.NativeEndian.Uint16(s.file[at+8:]); flags == leafPage || flags == branchPage {
			all = append(all, pageFields(s.file, at, fmt.Sprintf("page %d", page))...)
		}
	}
	pages := uint64(len(s.file) / size)
	random := rand.New(rand.NewPCG(5, 5))
	damaged, dir := 0, memoryDirectory(t)
	for range *changedFields {
		f := all[random.IntN(len(all))]
		was := f.get(s.file)
		values := []uint64{0, 1, 2, 3, was + 1, was - 1, was ^ 1<<random.IntN(f.size*8), was ^ 1<<random.IntN(8), random.Uint64N(pages), pages, 1<<64 - 1}
		file := slices.Clone(s.file)
		f.set(file, values[random.IntN(len(values))])
		if f.get(file) == was {
			continue
		}
		what := fmt.Sprintf("%s: %d instead of %d", f.what, f.get(file), was)
		found, err := inspectDamagedIn(named{t, what}, dir, file, s.texts)
		switch {
		case err != nil:
			t.Errorf("%s: refused: %v", what, err)
		case found.Damaged > 0:
			damaged++
		case found.Messages != s.depth || found.Queues != 3:
			t.Errorf("%s: %d messages of %d queues are left, and nothing is said", what, found.Messages, found.Queues)
		}
	}
	t.Logf("of %d changed numbers %d were found", *changedFields, damaged)
}

// named says in front of what goes wrong what was tried.
type named struct {
	*testing.T
	what string
}

func (n named) Fatal(args ...any) { n.Helper(); n.T.Fatal(append([]any{n.what, ": "}, args...)...) }
func (n named) Fatalf(format string, args ...any) {
	n.Helper()
	n.T.Fatalf("%s: "+format, append([]any{n.what}, args...)...)
}
