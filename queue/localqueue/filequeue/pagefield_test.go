package filequeue

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/boltfile"
)

// The parts of bbolt's format that tests change.
const (
	pageHeader   = 16 // id, flags, count, overflow
	elementSize  = 16
	branchPage   = 0x01
	leafPage     = 0x02
	bucketFlag   = 0x01
	bucketHeader = 16 // root page, sequence
)

var changedFields = flag.Int("fields", 40, "number of changed page fields that TestEveryDamagedPageFieldIsReported tries")

// field is a number in a file that bbolt trusts.
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

// pageFields returns the fields of the page at an offset, including inline ones.
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

// TestEveryDamagedPageFieldIsReported changes numbers that bbolt trusts, one at a time, on used and
// on free pages. An opened file must never make bbolt panic, and missing messages must be reported
// as damage.
func TestEveryDamagedPageFieldIsReported(t *testing.T) {
	if testing.Short() {
		t.Skip("a sweep over fields")
	}
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
	tries := *changedFields
	for range tries {
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
			t.Errorf("%s: got %v, want the file opened", what, err)
		case found.Damaged > 0:
			damaged++
		case found.Messages != s.depth || found.Queues != 3:
			t.Errorf("%s: got %d messages of %d queues and no damage, want damage reported", what, found.Messages, found.Queues)
		}
	}
	t.Logf("%d of %d changed fields were reported as damage", damaged, tries)
}

// named prefixes failures with what was tried.
type named struct {
	*testing.T
	what string
}

func (n named) Fatal(args ...any) { n.Helper(); n.T.Fatal(append([]any{n.what, ": "}, args...)...) }
func (n named) Fatalf(format string, args ...any) {
	n.Helper()
	n.T.Fatalf("%s: "+format, append([]any{n.what}, args...)...)
}

// commitOf returns a reader of the newest commit.
func commitOf(t *testing.T, file []byte) *boltfile.Reader {
	t.Helper()
	r, err := boltfile.NewReader(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// inspected returns a reader that has seen all used pages.
func inspected(t *testing.T, file []byte) *boltfile.Reader {
	t.Helper()
	r := commitOf(t, file)
	newSnapshot().visitRecords(r, func(bucket, []byte, []byte) {})
	return r
}

// freeLeaf returns a free page that was a leaf.
func freeLeaf(t *testing.T, file []byte) uint64 {
	t.Helper()
	in, size := inspected(t, file), os.Getpagesize()
	for page := uint64(2); page < in.Meta.High; page++ {
		if !in.Seen(page) && binary.NativeEndian.Uint16(file[int(page)*size+8:]) == leafPage {
			return page
		}
	}
	t.Fatal("no page is free")
	return 0
}

// fieldNamed returns the first field of the used pages whose name matches.
func fieldNamed(t *testing.T, file []byte, pattern string) field {
	t.Helper()
	size := os.Getpagesize()
	in := inspected(t, file)
	for page := range uint64(len(file) / size) {
		if !in.Seen(page) {
			continue
		}
		what := "page"
		if page == in.Meta.Root {
			what = "root"
		}
		for _, f := range pageFields(file, int(page)*size, what) {
			if regexp.MustCompile(pattern).MatchString(f.what) {
				return f
			}
		}
	}
	t.Fatalf("no field matches %s", pattern)
	return field{}
}

// TestFieldsThatBboltTrustsAreChecked: an invalid field is page damage, and bbolt gets a rebuilt
// file.
func TestFieldsThatBboltTrustsAreChecked(t *testing.T) {
	if testing.Short() {
		t.Skip("a sweep over fields")
	}
	s := sampled(t)
	size := os.Getpagesize()
	set := func(pattern string, value func(was uint64) uint64) func([]byte) {
		return func(file []byte) {
			f := fieldNamed(t, file, pattern)
			f.set(file, value(f.get(file)))
		}
	}
	fixed := func(n uint64) func(uint64) uint64 { return func(uint64) uint64 { return n } }
	for what, damage := range map[string]func(file []byte){
		"an inline bucket has a page number":    set(`inline id`, fixed(48)),
		"an inline bucket has a used page's id": set(`inline id`, fixed(fieldNamed(t, s.file, `^page id`).get(s.file))),
		"an inline bucket has an overflow":      set(`inline overflow`, fixed(1)),
		"an inline bucket is a branch":          set(`inline flags`, fixed(branchPage)),
		"an inline bucket has too many entries": set(`inline count`, func(was uint64) uint64 { return was + 1 }),
		"an inline bucket also has a page":      set(`^root entry 0 root$`, fixed(freeLeaf(t, s.file))),
		"an entry ends early":                   set(`^page entry 0 value size`, func(was uint64) uint64 { return was - 1 }),
		"a page has another id":                 set(`^page id`, func(was uint64) uint64 { return was + 1 }),
		"a page has another overflow":           set(`^page overflow`, func(was uint64) uint64 { return was + 1 }),
		"a branch leads to the page before":     set(`^page entry 1 child`, func(was uint64) uint64 { return was - 1 }),
		"a branch has one child":                leaveOneChild(t),
		"the meta pages are exchanged": func(file []byte) {
			first := slices.Clone(file[:size])
			copy(file[:size], file[size:2*size])
			copy(file[size:2*size], first)
		},
		"the first meta page twice":  func(file []byte) { copy(file[size:2*size], file[:size]) },
		"the second meta page twice": func(file []byte) { copy(file[:size], file[size:2*size]) },
	} {
		file := slices.Clone(s.file)
		damage(file)
		found, err := inspectDamaged(named{t, what}, file, s.texts)
		if err != nil || found.Damaged == 0 || found.Copy == "" {
			t.Errorf("%s: got %+v, %v; want damage and a copy", what, found, err)
		}
	}
}

// leaveOneChild removes all children but the first from a branch.
func leaveOneChild(t *testing.T) func(file []byte) {
	return func(file []byte) {
		child := fieldNamed(t, file, `^page entry 0 child`)
		entry := child.at - 8
		n := binary.NativeEndian
		key := slices.Clone(file[entry+int(n.Uint32(file[entry:])):][:n.Uint32(file[entry+4:])])
		n.PutUint16(file[entry-pageHeader+10:], 1)
		n.PutUint32(file[entry:], elementSize)
		copy(file[entry+elementSize:], key)
	}
}

// TestAMetaPageThatWasNotWrittenIsDetected: of two commits that are not consecutive, one is
// stale.
func TestAMetaPageThatWasNotWrittenIsDetected(t *testing.T) {
	files := snapshots(t)
	newest, before, size := files[len(files)-1], files[len(files)-4], os.Getpagesize()
	file := slices.Clone(newest)
	other := int(1-commitOf(t, newest).Meta.Slot) * size
	copy(file[other:other+size], before[other:])
	if found, err := inspectDamaged(t, file, map[string]bool{"text": true}); err != nil || found.Damaged == 0 {
		t.Errorf("got %+v, %v; want damage reported", found, err)
	}
}
