package filetable

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/boltfile"
	"github.com/millrace/millrace/table"
)

// block is what a disk writes completely or not at all.
const block = 512

// disk is a file that can lose its power. Of the blocks that were written since the last wait, each may be as it was, or
// as any write has left it: a disk writes them in any order, and the system may have written a page twice.
type disk struct {
	db     *DB
	path   string
	states [][]byte // of the file: at the last wait, and after each write since
	cuts   []powerCut
}

// powerCut is a moment at which the power may be cut: before a wait, or after the commit was confirmed.
type powerCut struct {
	states    [][]byte
	confirmed bool
}

// newDisk watches a file of which everything is on disk.
func newDisk(t testing.TB, db *DB) *disk {
	t.Helper()
	d := &disk{db: db, path: db.path}
	d.states = [][]byte{d.read(t)}
	wait := db.sync
	db.sync = func() error {
		now := d.read(t)
		if m := newestMeta(t, now); m.Commit != newestMeta(t, d.states[0]).Commit {
			unsealed := bytes.Clone(now) // as bbolt has written the root
			clear(unsealed[m.MetaAt(m.Slot)+rootSize : m.MetaAt(m.Slot)+int64(m.PageSize)])
			d.states = append(d.states, unsealed)
		}
		d.cuts = append(d.cuts, powerCut{append(d.states, now), false})
		d.states = [][]byte{now}
		return wait()
	}
	return d
}

// read returns the file up to the end of the pages in use. What is behind it has no meaning.
func (d *disk) read(t testing.TB) []byte { return withoutReserve(t, readFile(t, d.path)) }

// commit makes a commit, and returns when the power may be cut: also after it, when only its mark was not waited for.
func (d *disk) commit(t testing.TB, requests ...*request) []powerCut {
	t.Helper()
	d.cuts = nil
	committed(t, d.db, requests...)
	d.states = append(d.states, d.read(t))
	return append(d.cuts, powerCut{d.states, true})
}

// differing returns the blocks that a power cut may leave in several states.
func differing(states [][]byte) (blocks []int) {
	for i := range len(states[len(states)-1]) / block {
		if len(versions(states, i)) > 1 {
			blocks = append(blocks, i)
		}
	}
	return blocks
}

// versions returns the contents that a block has had, the oldest first.
func versions(states [][]byte, i int) (all [][]byte) {
	for _, s := range states {
		b := make([]byte, block)
		if i*block < len(s) {
			b = s[i*block : (i+1)*block]
		}
		if len(all) == 0 || !bytes.Equal(all[len(all)-1], b) {
			all = append(all, b)
		}
	}
	return all
}

// image returns the file after a power cut. choose returns which version the kth of the blocks that were written has, of
// n, 0 being the one before.
func image(states [][]byte, choose func(k, n int) int) []byte {
	file := bytes.Clone(states[len(states)-1])
	for k, i := range differing(states) {
		all := versions(states, i)
		copy(file[i*block:], all[choose(k, len(all))])
	}
	return file
}

// failer is a test, of package testing or rapid.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// content returns what a file has, by row. It fails the test unless the file opens; inside is called while it is open.
func content(t failer, path string, inside func(*DB)) map[string]string {
	t.Helper()
	db, err := Open(path, nil)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	s, err := db.Table("channels")
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	got := map[string]string{}
	for e, err := range table.All(context.Background(), s, table.Query{}) {
		if err != nil {
			t.Fatalf("read: %v", err)
		}
		got[e.Row] = e.Text("Text")
	}
	inside(db)
	if err := db.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	return got
}

// survive opens a file as a power cut has left it, which must have the content of one of the two, and returns which. It
// cuts the power again while the file is opened, and then goes on with the file.
func survive(t failer, path string, left []byte, again bool, before, after map[string]string) string {
	t.Helper()
	if err := os.WriteFile(path, left, 0o600); err != nil {
		t.Fatalf("%v", err)
	}
	var opened []byte
	got := content(t, path, func(*DB) { opened, _ = os.ReadFile(path) })
	is := "after"
	switch {
	case maps.Equal(got, after):
	case maps.Equal(got, before):
		is = "before"
	default:
		t.Fatalf("got %d entities, which are neither the %d before the commit nor the %d after it", len(got), len(before), len(after))
	}
	if again {
		opened = opened[:len(left)]
		states := [][]byte{left, opened}
		m, _, err := boltfile.ReadMetas(bytes.NewReader(left))
		if err != nil {
			t.Fatalf("%v", err)
		}
		if how, _, err := standingOf(bytes.NewReader(left), m); err == nil && how == interrupted {
			discarded := bytes.Clone(left)
			clear(discarded[m.MetaAt(m.Slot):][:m.PageSize])
			states = [][]byte{left, discarded, opened}
		}
		for range 2 {
			second := image(states, func(_, n int) int { return rand.IntN(n) })
			if now := survive(t, path, second, false, got, got); now != "after" {
				t.Fatalf("a second power cut changed the file")
			}
		}
		if err := os.WriteFile(path, opened, 0o600); err != nil {
			t.Fatalf("%v", err)
		}
	}
	later := maps.Clone(got)
	content(t, path, func(db *DB) {
		s, err := db.Table("channels")
		if err == nil {
			_, err = s.Insert(context.Background(), entity("p", "later", "x"))
		}
		if err != nil {
			t.Fatalf("go on after a power cut: %v", err)
		}
	})
	later["later"] = "x"
	if got := content(t, path, func(*DB) {}); !maps.Equal(got, later) {
		t.Fatalf("a commit after a power cut: got %d entities, want %d", len(got), len(later))
	}
	return is
}

// kept is what a table has, by row, and the requests that bring it there.
type kept map[string]string

func (k kept) put(row, text string) *request {
	e := entity("p", row, text)
	e.ETag = table.Any
	change := table.Inserting(e)
	if _, is := k[row]; is {
		change = table.Updating(e)
	}
	k[row] = text
	return newRequest([]byte("table channels"), []table.Change{change})
}

func (k kept) remove(row string) *request {
	delete(k, row)
	return newRequest([]byte("table channels"), []table.Change{table.Deleting(table.Key{Partition: "p", Row: row}, table.Any)})
}

func (k kept) putMany(first, n, size int) (all []*request) {
	for i := range n {
		all = append(all, k.put(fmt.Sprintf("%05d", first+i), strings.Repeat("x", size)))
	}
	return all
}

func (k kept) removeMany(first, n int) (all []*request) {
	for _, row := range slices.Sorted(maps.Keys(k))[first:][:n] {
		all = append(all, k.remove(row))
	}
	return all
}

// commitShapes are commits of a table with 600 rows: what they do to the tree differs.
var commitShapes = []struct {
	name  string
	waits int
	pages int // that it writes besides the meta page; 0 if that is not counted
	do    func(k kept) []*request
}{
	{"insert", 1, 3, func(k kept) []*request { return k.putMany(900, 1, 100) }},
	{"insert in the middle", 1, 3, func(k kept) []*request { return []*request{k.put("00300a", "y")} }},
	{"replace", 1, 3, func(k kept) []*request { return k.putMany(300, 1, 200) }},
	{"replace by a larger one", 1, 0, func(k kept) []*request { return k.putMany(300, 1, 20_000) }},
	{"delete", 1, 3, func(k kept) []*request { return k.removeMany(0, 1) }},
	{"delete a page", 1, 0, func(k kept) []*request { return k.removeMany(100, 30) }},
	{"delete most", 1, 0, func(k kept) []*request { return k.removeMany(0, 599) }},
	{"delete all", 1, 0, func(k kept) []*request { return k.removeMany(0, 600) }},
	{"a batch", 1, 0, func(k kept) []*request { return append(k.removeMany(200, 20), k.putMany(900, 40, 500)...) }},
	{"growth", 1, 0, func(k kept) []*request { return k.putMany(900, 100, 4000) }},
	{"many pages", 2, 0, func(k kept) []*request { return k.putMany(900, 600, 3900) }},
	{"large pages", 2, 0, func(k kept) []*request { return k.putMany(900, 280, 30_000) }},
}

// shaped returns a file with the 600 rows that commitShapes begin with, and room for any commit. The test makes the commits.
func shaped(t testing.TB) (*DB, kept) {
	t.Helper()
	db, k := unlooped(t, scratch(t)), kept{}
	committed(t, db, k.putMany(0, 600, 300)...)
	if err := db.reserve.ensure(db.reserve.allocated, 20<<20); err != nil { // which waits
		t.Fatal(err)
	}
	return db, k
}

// TestAPowerCutLeavesACommitOrTheOneBefore: for each shape of a commit, of the blocks that it writes before a wait, all up
// to any one, all from any one, all but any one, and any one alone reach the disk. A confirmed commit is there.
func TestAPowerCutLeavesACommitOrTheOneBefore(t *testing.T) {
	for _, shape := range commitShapes {
		t.Run(shape.name, func(t *testing.T) {
			db, after := shaped(t)
			d, before := newDisk(t, db), maps.Clone(after)
			copies := filepath.Join(filepath.Dir(d.path), "cut.db")
			found := map[string]int{}
			for _, c := range d.commit(t, shape.do(after)...) {
				if c.confirmed {
					before = after
				}
				n := len(differing(c.states))
				stride := 1 + n/12
				if testing.Short() {
					stride = max(1, n)
				}
				for k := rand.IntN(stride); k < n; k += stride {
					for _, reached := range []func(i int) bool{
						func(i int) bool { return i < k }, func(i int) bool { return i > k },
						func(i int) bool { return i != k }, func(i int) bool { return i == k },
					} {
						left := image(c.states, func(i, n int) int {
							if !reached(i) {
								return 0
							}
							return n - 1 - rand.IntN(n-1)/2 // the root, without the seal or with it
						})
						found[survive(t, copies, left, rand.IntN(8) == 0, before, after)]++
					}
				}
			}
			closed(t, db)
			if found["before"] == 0 || found["after"] == 0 {
				t.Errorf("power cuts left %v, want some of each", found)
			}
		})
	}
}

// TestPowerCutsOfAnyCommits: any commits one after the other, with power cuts that leave any blocks of them.
func TestPowerCutsOfAnyCommits(t *testing.T) {
	path := scratch(t)
	copies := filepath.Join(filepath.Dir(path), "cut.db")
	rapid.Check(t, func(rt *rapid.T) {
		_ = os.Remove(path)
		db, k := unlooped(t, path), kept{}
		defer closed(t, db)
		d := newDisk(t, db)
		d.commit(t, k.putMany(0, rapid.IntRange(1, 200).Draw(rt, "rows"), 300)...)
		for range rapid.IntRange(1, 6).Draw(rt, "commits") {
			before := maps.Clone(k)
			var requests []*request
			for range rapid.IntRange(1, 12).Draw(rt, "changes") {
				row := fmt.Sprintf("%05d", rapid.IntRange(0, 300).Draw(rt, "row"))
				if _, is := k[row]; is && rapid.Bool().Draw(rt, "delete") {
					requests = append(requests, k.remove(row))
				} else {
					requests = append(requests, k.put(row, strings.Repeat("y", rapid.IntRange(0, 9000).Draw(rt, "size"))))
				}
			}
			for _, c := range d.commit(t, requests...) {
				if c.confirmed {
					before = k
				}
				seed := rapid.Uint64().Draw(rt, "seed")
				chance := rand.New(rand.NewPCG(seed, 0))
				lost := chance.Float64()
				left := image(c.states, func(_, n int) int {
					if chance.Float64() < lost {
						return 0
					}
					return n - 1 - chance.IntN(n-1)
				})
				survive(rt, copies, left, seed%4 == 0, before, k)
			}
		}
	})
}

// oldFile returns a file that the release before seals has written, in format 1, and what its table Channels has.
func oldFile(t *testing.T) (file []byte, has map[string]string) {
	t.Helper()
	f, err := os.Open("testdata/format1.db.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err == nil {
		file, err = io.ReadAll(z)
	}
	if err != nil {
		t.Fatal(err)
	}
	has = map[string]string{}
	for i := range 2 {
		for j := range 60 {
			has[fmt.Sprintf("%d-%02d", i, j)] = strings.Repeat(fmt.Sprint(j), 20)
		}
	}
	delete(has, "0-00")
	return file, has
}

// TestAFileOfFormat1: it opens, has all that it had, is of format 2 from then on, and can be changed and opened again.
func TestAFileOfFormat1(t *testing.T) {
	file, has := oldFile(t)
	path := scratch(t)
	writeFile(t, path, file)
	db := opened(t, path)
	for name, text := range map[string]string{"Small": "an inline bucket", "Large": strings.Repeat("x", 10_000)} {
		if e, err := tableOf(t, db, name).Get(t.Context(), table.Key{Partition: "p", Row: "r"}); err != nil || e.Text("Text") != text {
			t.Errorf("table %s: got %v, %v", name, e, err)
		}
	}
	etag := inserted(t, tableOf(t, db, "Channels"), entity("p", "new", "y"))
	if etag != etagOf(123) { // 122 entities were inserted before
		t.Errorf("the next version is %s, want %s", etag, etagOf(123))
	}
	closed(t, db)
	has["new"] = "y"
	if got := content(t, path, func(*DB) {}); !maps.Equal(got, has) {
		t.Errorf("got %d entities, want %d", len(got), len(has))
	}
	now := readFile(t, path)
	r, err := boltfile.NewReader(bytes.NewReader(now), int64(len(now)))
	if err != nil {
		t.Fatal(err)
	}
	if is, err := checkCommit(r, int64(len(now))); err != nil || is != 2 {
		t.Errorf("got format %d, %v, want 2", is, err)
	}
}

// TestAPowerCutInAChangeOfTheFormat: in each step that ends with a wait, any blocks may have reached the disk. Nothing is
// lost, and the file can be opened and used.
func TestAPowerCutInAChangeOfTheFormat(t *testing.T) {
	file, has := oldFile(t)
	path := scratch(t)
	writeFile(t, path, file)
	db := unlooped(t, path)
	now := readFile(t, path)
	closed(t, db)
	m := newestMeta(t, now)
	now = withoutReserve(t, now)
	meta := func(of []byte) []byte { return of[m.MetaAt(m.Slot):][:m.PageSize] }
	other := func(of []byte) []byte { return of[m.MetaAt(1-m.Slot):][:m.PageSize] }
	file = append(file, make([]byte, max(0, len(now)-len(file)))...)
	steps := [][]byte{file}
	step := func(change func(of []byte)) {
		next := bytes.Clone(steps[len(steps)-1])
		change(next)
		steps = append(steps, next)
	}
	step(func(of []byte) { copy(of[2*m.PageSize:], now[2*m.PageSize:]) }) // pages, and a wait
	step(func(of []byte) { copy(meta(of)[:rootSize], meta(now)) })        // root, and a wait
	step(func(of []byte) { copy(meta(of), meta(now)) })                   // seal, and a wait
	step(func(of []byte) { copy(other(of), other(now)) })                 // mark
	if !bytes.Equal(steps[len(steps)-1], now) {
		t.Fatal("opening wrote more than these steps")
	}
	for i := range len(steps) - 1 {
		two := steps[i : i+2]
		n := len(differing(two))
		if n == 0 {
			t.Errorf("step %d writes nothing", i)
		}
		for k := range n {
			for _, reached := range []func(k, n int) int{
				func(j, _ int) int { return min(1, max(0, k-j)) }, // those before k
				func(j, _ int) int { return min(1, max(0, j-k)) }, // those behind k
				func(int, int) int { return rand.IntN(2) },
			} {
				left := image(two, reached)
				survive(t, path, left, false, has, has)
			}
		}
	}
	// A meta page that was lost while its seal was written leaves the file of format 1.
	torn := bytes.Clone(steps[2])
	clear(meta(torn))
	survive(t, path, torn, false, has, has)
}
