package boltfile

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// The offsets of fields in a page, and of those of an entry of a leaf and of a branch.
const (
	idAt, flagsAt, countAt, overflowAt = 0, 8, 10, 12

	leafFlagsAt, leafPositionAt, leafKeyAt, leafValueAt = 0, 4, 8, 12
	branchPositionAt, branchKeyAt, branchChildAt        = 0, 4, 8
)

func entryAt(i, field int) int { return pageHeader + i*elementSize + field }

// put16 and so on return a change of a field.
func put16(page, at int, n uint16) func(image) {
	return func(m image) { native.PutUint16(m.page(page)[at:], n) }
}

func put32(page, at int, n uint32) func(image) {
	return func(m image) { native.PutUint32(m.page(page)[at:], n) }
}

func put64(page, at int, n uint64) func(image) {
	return func(m image) { native.PutUint64(m.page(page)[at:], n) }
}

// replace returns a change of a part of a page.
func replace(page int, was, with string) func(image) {
	return func(m image) {
		at := bytes.Index(m.page(page), []byte(was))
		copy(m.page(page)[at:], with)
	}
}

// rewrite returns a change that replaces the beginning of a page.
func rewrite(n int, with []byte) func(image) {
	return func(m image) { copy(m.page(n), with) }
}

// inline returns a change of the page within the root.
func inline(at int, to byte) func(image) {
	return func(m image) {
		key := bytes.Index(m.page(2), []byte("small"))
		m.page(2)[key+len("small")+bucketHeader+at] = to
	}
}

// newest returns a change of the newest meta page.
func newest(change func(*Meta)) func(image) {
	return func(m image) {
		meta := readMeta(bytes.NewReader(m), 0)
		change(&meta)
		m.setMeta(0, meta)
	}
}

// freePages returns the page 9.
func freePages(count uint16, list ...uint64) []byte {
	b := page(9, freelistPage)
	native.PutUint16(b[countAt:], count)
	return append(b, words(list...)...)
}

func TestASoundFileHasNoDamage(t *testing.T) {
	m := newImage()
	r := m.reader(t)
	if got := walkAll(r); len(got.damage) > 0 || !slices.Equal(got.keys, without()) {
		t.Errorf("got %q and the damage %q, want %q", got.keys, got.damage, without())
	}
	if r.Used() != 8 || !r.Seen(6) || !r.Seen(8) || r.Seen(1) || r.Seen(10) || r.Seen(math.MaxUint64) {
		t.Errorf("got %d pages seen, want 8", r.Used())
	}
	rewrite(9, freePages(math.MaxUint16, 1, 8))(m) // as a list of many is written
	if got := walkAll(m.reader(t)); len(got.damage) > 0 {
		t.Errorf("a list with its number in front: got the damage %q", got.damage)
	}
	if !r.Whole() || !r.Consecutive() || r.Truncated() || r.Meta.Commit != 6 || r.Previous.Commit != 5 {
		t.Errorf("got the commits %+v and %+v, want 6 and 5", r.Meta, r.Previous)
	}
}

// TestEveryBoundIsChecked: bbolt checks none of them. A walk that goes on finds all that is not below the damage.
func TestEveryBoundIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(image)
		says   string
		lost   []string
	}{
		"a page number of a meta page":     {put64(3, entryAt(1, branchChildAt), 1), "page 1 is not among the 10 pages in use", []string{"tree d", "tree e"}},
		"a page number that is too high":   {put64(3, entryAt(1, branchChildAt), 10), "page 10 is not among the 10 pages in use", []string{"tree d", "tree e"}},
		"a page number that overflows":     {put64(3, entryAt(1, branchChildAt), math.MaxUint64), "is not among the 10 pages in use", []string{"tree d", "tree e"}},
		"a page that is used twice":        {put64(3, entryAt(1, branchChildAt), 4), "page 4 is used twice", []string{"tree d", "tree e"}},
		"a loop":                           {put64(3, entryAt(0, branchChildAt), 3), "page 3 is used twice", []string{"tree a", "tree b"}},
		"overflow that is used twice":      {put32(4, overflowAt, 1), "page 5 is used twice", []string{"tree d", "tree e"}},
		"overflow that is free":            {put32(7, overflowAt, 1), "page 8 is used twice", []string{"tree g"}},
		"overflow beyond the pages in use": {put32(7, overflowAt, 3), "page 7 has an invalid overflow of 3 pages", []string{"tree g"}},
		"overflow of 2 TiB":                {put32(7, overflowAt, math.MaxUint32), "page 7 has an invalid overflow", []string{"tree g"}},
		"another page's id":                {put64(7, idAt, 4), "page 7 has id 4", []string{"tree g"}},
		"flags of no tree":                 {put16(7, flagsAt, freelistPage), "page 7: it has the flags 0x10", []string{"tree g"}},
		"two flags":                        {put16(7, flagsAt, leafPage|branchPage), "page 7: it has the flags 0x3", []string{"tree g"}},
		"more entries than the page has":   {put16(7, countAt, 2), "page 7: entry 0 is out of place", []string{"tree g"}},
		"more entries than room":           {put16(7, countAt, 32), "page 7: it has 32 entries and no room", []string{"tree g"}},
		"a leaf without entries":           {put16(7, countAt, 0), "page 7: it is a leaf without entries", []string{"tree g"}},
		"fewer entries than the page has":  {put16(4, countAt, 1), "page 4: entry 0 is out of place", []string{"tree a", "tree b"}},
		"an entry with flags":              {put32(4, entryAt(1, leafFlagsAt), 2), "page 4: entry 1 has the flags 0x2", []string{"tree b"}},
		"an entry that begins early":       {put32(4, entryAt(1, leafPositionAt), 16), "page 4: entry 1 is out of place", []string{"tree b"}},
		"an entry that begins late":        {put32(4, entryAt(1, leafPositionAt), 19), "page 4: entry 1 is out of place", []string{"tree b"}},
		"an entry without a key":           {put32(4, entryAt(1, leafKeyAt), 0), "page 4: entry 1 is out of place", []string{"tree b"}},
		"a key beyond the page":            {put32(4, entryAt(1, leafKeyAt), 512), "page 4: entry 1 is out of place", []string{"tree b"}},
		"a value beyond the page":          {put32(4, entryAt(1, leafValueAt), 512), "page 4: entry 1 is out of place", []string{"tree b"}},
		"sizes that overflow":              {put32(4, entryAt(1, leafValueAt), math.MaxUint32), "page 4: entry 1 is out of place", []string{"tree b"}},
		"keys out of order":                {replace(5, "e\x00", "c\x00"), "page 5: entry 1 is out of order", []string{"tree e"}},
		"the same key twice":               {replace(5, "e\x00", "d\x00"), "page 5: entry 1 is out of order", []string{"tree e"}},
		"a first key before the branch's":  {replace(5, "d3", "c3"), "page 5: entry 0 is out of order", []string{"tree d", "tree e"}},
		"a first key after the branch's":   {replace(7, "g5", "h5"), "page 7: entry 0 is out of order", []string{"tree g"}},
		"a last key of the next page":      {replace(5, "e\x00", "g\x00"), "page 5: entry 1 is out of order", []string{"tree e"}},
		"branch: more entries than room":   {put16(3, countAt, 32), "page 3: it has 32 entries and no room", []string{"tree a", "tree b", "tree d", "tree e", "tree g"}},
		"branch: an entry begins late":     {put32(3, entryAt(2, branchPositionAt), 19), "page 3: entry 2 is out of place", []string{"tree g"}},
		"branch: a key beyond the page":    {put32(3, entryAt(2, branchKeyAt), 512), "page 3: entry 2 is out of place", []string{"tree g"}},
		"branch: keys out of order":        {replace(3, "adg", "adb"), "page 3: entry 2 is out of order", []string{"tree g"}},
		"branch: one child":                {rewrite(3, page(3, branchPage, entry{key: "a", child: 4})), "page 3: it is a branch, and its number of entries is 1", []string{"tree d", "tree e", "tree g"}},
		"branch: no child":                 {put16(3, countAt, 0), "page 3: it is a branch, and its number of entries is 0", []string{"tree a", "tree b", "tree d", "tree e", "tree g"}},
		"inline: an id":                    {inline(idAt, 8), "its page within the root: it has page id 8", []string{"small k"}},
		"inline: overflow":                 {inline(overflowAt, 1), "its page within the root: it has page id 0 and overflow 1", []string{"small k"}},
		"inline: a branch":                 {inline(flagsAt, branchPage), "its page within the root: it has the flags 0x1 and is not a leaf", []string{"small k"}},
		"inline: more entries than room":   {inline(countAt, 9), "its page within the root: it has 9 entries and no room", []string{"small k"}},
		"inline: a value beyond its page":  {inline(entryAt(0, leafValueAt), 7), "its page within the root: entry 0 is out of place", []string{"small k"}},
		"inline: truncated":                {rewrite(2, page(2, leafPage, entry{flags: bucketFlag, key: "small", value: words(0, 0, 0)}, entry{flags: bucketFlag, key: "tree", value: words(3, 0)})), "its page within the root: it is truncated", []string{"small k"}},
		"root: an entry that is no bucket": {put32(2, entryAt(1, leafFlagsAt), 0), `page 2: the entry "tree" is not a bucket`, without()},
		"root: a bucket without a header":  {rewrite(2, page(2, leafPage, entry{flags: bucketFlag, key: "tree", value: words(3)})), `page 2: the entry "tree" is not a bucket`, without()},
		"root: inline and on a page":       {rewrite(2, page(2, leafPage, entry{flags: bucketFlag, key: "tree", value: words(3, 0, 0, 0)})), `page 2: the bucket "tree" is both inline and on a page`, without()},
		"root: beyond the pages in use":    {newest(func(m *Meta) { m.Root = 10 }), "page 10 is not among the 10 pages in use", without()},
		"free: a page in use":              {put64(9, pageHeader, 7), "page 7 is used twice", []string{"tree g"}},
		"free: a page listed twice":        {rewrite(9, freePages(2, 8, 8)), "page 8 is used twice", nil},
		"free: a meta page":                {put64(9, pageHeader, 1), "page 1 is not among the 10 pages in use", nil},
		"free: a page that is too high":    {put64(9, pageHeader, 10), "page 10 is not among the 10 pages in use", nil},
		"free: a page that overflows":      {put64(9, pageHeader, math.MaxUint64), "is not among the 10 pages in use", nil},
		"free: more entries than room":     {put16(9, countAt, 63), "page 9 has 63 entries and no room", nil},
		"free: far more entries than room": {rewrite(9, freePages(math.MaxUint16, math.MaxUint64)), "page 9 has 18446744073709551615 entries and no room", nil},
		"free: other flags":                {put16(9, flagsAt, leafPage), "page 9 has the flags 0x2", nil},
		"free: the list of another page":   {newest(func(m *Meta) { m.Freelist = 1 << 40 }), "page 1099511627776 is not among", nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := newImage()
			c.damage(m)
			got := walkAll(m.reader(t))
			if len(got.damage) == 0 || !strings.Contains(got.damage[0], c.says) {
				t.Errorf("got the damage %q, want %q", got.damage, c.says)
			}
			if want := without(c.lost...); !slices.Equal(got.keys, want) {
				t.Errorf("got %q, want %q", got.keys, want)
			}
		})
	}
}

// TestPagesBeyondTheEndOfTheFile: the newest meta page may have been written although the pages that it needs were not.
// Its numbers can also be those of an attacker, who knows the checksum.
func TestPagesBeyondTheEndOfTheFile(t *testing.T) {
	for name, change := range map[string]func(m image, page uint64){
		"of a branch": func(m image, page uint64) { put64(3, entryAt(2, branchChildAt), page)(m) },
		"overflow":    func(m image, page uint64) { put32(7, overflowAt, uint32(page-7))(m) },
		"free":        func(m image, page uint64) { put64(9, pageHeader, page)(m) },
	} {
		for _, page := range []uint64{10, 63, 64, 1 << 40, 1<<55 + 4} { // the last times the page size is that of page 4
			m := newImage()
			newest(func(m *Meta) { m.High = 1 << 60 })(m)
			change(m, page)
			r := m.reader(t)
			if !r.Truncated() {
				t.Errorf("%s, page %d: the file is not truncated", name, page)
			}
			if got := walkAll(r); len(got.damage) == 0 {
				t.Errorf("%s, page %d: got no damage", name, page)
			}
		}
	}
	m := newImage()
	const wraps = 1<<55 + 4 // its offset is that of page 4, and so are its bytes
	m.setMeta(0, Meta{PageSize: imagePageSize, Root: wraps, Freelist: noFreelist, High: 1 << 60, Commit: 6})
	put64(4, idAt, wraps)(m)
	if got := walkAll(m.reader(t)); len(got.damage) != 1 || !strings.Contains(got.damage[0], "is beyond the end of the file") {
		t.Errorf("a number that wraps around: got the damage %q", got.damage)
	}
	m = newImage()
	m = m[:len(m)-3*imagePageSize] // without page 7
	m.setMeta(0, Meta{PageSize: imagePageSize, Root: 2, Freelist: noFreelist, High: 10, Commit: 6})
	got := walkAll(m.reader(t))
	if want := []string{"page 7 is beyond the end of the file"}; !slices.Equal(got.damage, want) || !slices.Equal(got.keys, without("tree g")) {
		t.Errorf("got %q and the damage %q, want %q", got.keys, got.damage, want)
	}
}

// TestAPageThatIsTooLong: it would be read into memory as a whole.
func TestAPageThatIsTooLong(t *testing.T) {
	const overflow = maxPage / imagePageSize
	m := append(newImage(), make(image, maxPage)...)
	newest(func(m *Meta) { m.High += overflow })(m)
	put64(3, entryAt(2, branchChildAt), 9)(m)
	newest(func(m *Meta) { m.Freelist = noFreelist })(m)
	for more, want := range map[uint32][]string{overflow - 1: without(), overflow: without("tree g")} {
		copy(m.page(9), page(9, leafPage, entry{key: "g"}))
		put32(9, overflowAt, more)(m)
		if got := walkAll(m.reader(t)); !slices.Equal(got.keys, want) {
			t.Errorf("overflow of %d pages: got %q and the damage %q, want %q", more, got.keys, got.damage, want)
		}
		found := false
		m.reader(t).Scan(func(e Entry) { found = found || string(e.Key) == "g" && len(e.Value) == 0 })
		if found != (more < overflow) {
			t.Errorf("overflow of %d pages: the scan found it: %v", more, found)
		}
	}
}

// TestADeepTreeEnds: of branches that each have one more below.
func TestADeepTreeEnds(t *testing.T) {
	const depth = 2 * maxDepth
	m := append(newImage(), make(image, 2*depth*imagePageSize)...)
	newest(func(m *Meta) { m.High += 2 * depth })(m)
	put64(3, entryAt(2, branchChildAt), 10)(m)
	for i := range depth {
		at := 10 + 2*i
		copy(m.page(at), page(uint64(at), branchPage, entry{key: "g", child: uint64(at + 2)}, entry{key: strings.Repeat("x", depth-i), child: uint64(at + 1)}))
		copy(m.page(at+1), page(uint64(at+1), leafPage, entry{key: strings.Repeat("x", depth-i)}))
	}
	got := walkAll(m.reader(t))
	if len(got.damage) == 0 {
		t.Error("got no damage")
	}
	for _, why := range got.damage {
		if !strings.Contains(why, "is too deep in the tree") {
			t.Errorf("got the damage %q, want pages that are too deep", why)
		}
	}
}

// TestAWalkEndsWhenItIsTold: with the first damage, whether a page or the visitor reports it.
func TestAWalkEndsWhenItIsTold(t *testing.T) {
	m := newImage()
	put64(4, idAt, 5)(m)
	put64(7, idAt, 5)(m)
	bad, visited := errors.New("no entry of mine"), 0
	walk := func(visit func(Entry) error) error {
		r := m.reader(t)
		buckets, err := r.Buckets()
		if err != nil {
			t.Fatal(err)
		}
		return r.Walk(buckets[1], visit, Stop)
	}
	if err := walk(func(Entry) error { visited++; return nil }); err == nil || err.Error() != "page 4 has id 5" || visited > 0 {
		t.Errorf("got %v after %d entries, want the first damage", err, visited)
	}
	m = newImage()
	if err := walk(func(Entry) error { visited++; return bad }); !errors.Is(err, bad) || visited != 1 || !strings.Contains(err.Error(), "page 4") {
		t.Errorf("got %v after %d entries, want the visitor's error after one", err, visited)
	}
}

// TestScanFindsWhatNoTreeLeadsTo: and what comes before damage.
func TestScanFindsWhatNoTreeLeadsTo(t *testing.T) {
	m := newImage()
	clear(m.page(2)[:2*imagePageSize])
	put32(4, entryAt(1, leafValueAt), 512)(m)
	put32(7, overflowAt, math.MaxUint32)(m)
	var keys []string
	m.reader(t).Scan(func(e Entry) { keys = append(keys, string(e.Key)) })
	if want := []string{"a", "d", "e", "deleted"}; !slices.Equal(keys, want) {
		t.Errorf("got %q, want %q", keys, want)
	}
	put64(8, idAt, 7)(m)
	put32(7, overflowAt, 3)(m) // one page more than the file has
	keys = nil
	m.reader(t).Scan(func(e Entry) { keys = append(keys, string(e.Key)) })
	if want := []string{"a", "d", "e"}; !slices.Equal(keys, want) {
		t.Errorf("another id, and overflow beyond the file: got %q, want %q", keys, want)
	}
	put64(8, idAt, 8)(m)
	put16(8, flagsAt, freelistPage)(m)
	m.reader(t).Scan(func(e Entry) {
		if string(e.Key) == "deleted" {
			t.Error("a page that is not a leaf was scanned")
		}
	})
}

// failing is a disk that cannot read one part.
type failing struct {
	image
	from, to int64
}

var errDisk = errors.New("input/output error")

func (f failing) ReadAt(b []byte, at int64) (int, error) {
	if at < f.to && at+int64(len(b)) > f.from {
		return 0, errDisk
	}
	return bytes.NewReader(f.image).ReadAt(b, at)
}

// TestADiskThatCannotReadAPage: it is damage, too; of overflow alone, too.
func TestADiskThatCannotReadAPage(t *testing.T) {
	m := newImage()
	for page, lost := range map[int64][]string{4: {"tree a", "tree b"}, 6: {"tree d", "tree e"}} {
		f := failing{m, page * imagePageSize, (page + 1) * imagePageSize}
		r, err := NewReader(f, int64(len(m)))
		if err != nil {
			t.Fatal(err)
		}
		got := walkAll(r)
		if len(got.damage) != 1 || !strings.Contains(got.damage[0], errDisk.Error()) || !slices.Equal(got.keys, without(lost...)) {
			t.Errorf("page %d: got %q and the damage %q", page, got.keys, got.damage)
		}
		r.Scan(func(e Entry) {
			if slices.Contains(lost, "tree "+string(e.Key)) {
				t.Errorf("page %d: got the entry %q", page, e.Key)
			}
		})
	}
}
