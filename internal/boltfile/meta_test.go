package boltfile

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

// TestADamagedMetaPageIsTheCommitBefore: of either, every bit that matters.
func TestADamagedMetaPageIsTheCommitBefore(t *testing.T) {
	for slot := range 2 {
		for bit := range metaSize * 8 {
			m := newImage()
			m.page(slot)[pageHeader+bit/8] ^= 1 << (bit % 8)
			r := m.reader(t)
			if want := uint64(5 + slot); r.Whole() || r.Meta.Commit != want || r.Meta.Slot != uint64(1-slot) || r.FallBack() {
				t.Fatalf("bit %d of meta page %d: got %+v, want the commit %d alone", bit, slot, r.Meta, want)
			}
			if got := walkAll(r); len(got.damage) > 0 && slot == 0 { // commit 5 has no list of free pages
				t.Fatalf("bit %d of meta page %d: got the damage %q", bit, slot, got.damage)
			}
		}
	}
}

func TestMetaPagesThatBboltNeverWrites(t *testing.T) {
	sound := Meta{PageSize: imagePageSize, Root: 2, Freelist: noFreelist, High: 10, Commit: 6}
	for name, c := range map[string]struct{ first, second Meta }{
		"page size 0":         {Meta{Commit: 6}, Meta{Commit: 5}},
		"page size 256":       {Meta{PageSize: 256, Commit: 6}, Meta{PageSize: 256, Commit: 5}},
		"page size 768":       {Meta{PageSize: 768, Commit: 6}, Meta{PageSize: 768, Commit: 5}},
		"page size 128 KiB":   {Meta{PageSize: 1 << 17, Commit: 6}, Meta{PageSize: 1 << 17, Commit: 5}},
		"second of elsewhere": {Meta{}, Meta{PageSize: 1024, Commit: 5}},
	} {
		m := newImage()
		m.setMeta(0, c.first)
		m.setMeta(1, c.second)
		if _, err := NewReader(bytes.NewReader(m), int64(len(m))); !errors.Is(err, ErrNoMeta) {
			t.Errorf("%s: got %v, want ErrNoMeta", name, err)
		}
	}
	for name, content := range map[string][]byte{"empty": nil, "short": []byte("not ours"), "zeros": make([]byte, 1<<17)} {
		if _, err := NewReader(bytes.NewReader(content), int64(len(content))); !errors.Is(err, ErrNoMeta) {
			t.Errorf("%s: got %v, want ErrNoMeta", name, err)
		}
	}
	for field, name := range []string{"magic", "version"} {
		m := newImage()
		m.page(0)[pageHeader+4*field]++
		m.sumMeta(0)
		if r := m.reader(t); r.Whole() || r.Meta.Commit != 5 {
			t.Errorf("another %s: got %+v, want commit 5", name, r.Meta)
		}
	}
	for name, c := range map[string]struct {
		first, second   uint64
		is, consecutive bool
	}{
		"consecutive": {6, 5, true, true},
		"the second":  {6, 7, true, true},
		"a gap":       {8, 5, true, false},
		"equal":       {6, 6, true, false},
		"exchanged":   {5, 6, true, false},
	} {
		m, first, second := newImage(), sound, sound
		first.Commit, second.Commit = c.first, c.second
		m.setMeta(0, first)
		m.setMeta(1, second)
		if r := m.reader(t); r.Whole() != c.is || r.Consecutive() != c.consecutive {
			t.Errorf("%s: got consecutive %v, want %v", name, r.Consecutive(), c.consecutive)
		}
	}
}

// TestFallBackForgetsWhatWasSeen: pages of the newest commit are in the one before, too.
func TestFallBackForgetsWhatWasSeen(t *testing.T) {
	m := newImage()
	put64(7, idAt, 3)(m)
	r := m.reader(t)
	if got := walkAll(r); len(got.damage) != 1 {
		t.Errorf("got the damage %q, want one page", got.damage)
	}
	put64(7, idAt, 7)(m)
	if !r.FallBack() || r.Meta.Commit != 5 || r.Used() != 0 || r.Whole() || !r.Consecutive() {
		t.Errorf("got %+v, want commit 5", r.Meta)
	}
	if got := walkAll(r); len(got.damage) > 0 || !slices.Equal(got.keys, without()) {
		t.Errorf("got %q and the damage %q", got.keys, got.damage)
	}
	if r.FallBack() {
		t.Error("fell back twice")
	}
}
