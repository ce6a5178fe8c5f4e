package channels

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/table"
)

func TestNamesArePlainText(t *testing.T) {
	for _, good := range []string{
		"a", "Channel9", "C#", "a/b\\c?d%e!f", "  padded ", "'; drop table", "<script>alert(1)</script>", "..", "!", "%2F", "日本語", "🦀",
		strings.Repeat("🦀", MaxName), strings.Repeat("/", MaxName), "e\u0301",
	} {
		if err := CheckName(good); err != nil {
			t.Errorf("%q: got %v, want no error", good, err)
		}
		if err := channelKey(good).Check(); err != nil {
			t.Errorf("key of %q: got %v, want no error", good, err)
		}
	}
	for _, bad := range []string{"", " ", "\u00a0\u2003", "\u200b", "\u0301", "a\nb", "a\x00", "a\u0085", "\x7f", "a\xff", strings.Repeat("a", MaxName+1)} {
		if err := CheckName(bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: got %v, want ErrInvalid", bad, err)
		}
	}
}

func TestPostsArePlainText(t *testing.T) {
	long := strings.Repeat("🦀", MaxText)
	if err := checkPost("ann", strings.Repeat("t", MaxTitle), long); err != nil {
		t.Errorf("got %v, want no error", err)
	}
	if err := (table.Entity{Key: channelKey("a"), Properties: map[string]any{textOf: long}}).Check(); err != nil {
		t.Errorf("entity of the longest text: got %v, want no error", err)
	}
	if err := checkPost("ann", "title", "two\r\n\tlines\n"); err != nil {
		t.Errorf("lines: got %v, want no error", err)
	}
	for _, bad := range [][3]string{
		{"", "t", "x"}, {"u", "", "x"}, {"u", "t", " \n"}, {"u\n", "t", "x"}, {"u", "t\n", "x"}, {"u", "t", "\x01"}, {"u", "t", "\xc3"},
		{strings.Repeat("u", MaxName+1), "t", "x"}, {"u", strings.Repeat("t", MaxTitle+1), "x"}, {"u", "t", long + "x"},
	} {
		if err := checkPost(bad[0], bad[1], bad[2]); !errors.Is(err, ErrInvalid) {
			t.Errorf("%.20q: got %v, want ErrInvalid", bad, err)
		}
	}
}

// No two names share a partition, every name has one that tables accept, and the order is that of the names with
// what is escaped right after the space.
func TestPartitionsAreDistinctAndInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringOf(rapid.OneOf(rapid.SampledFrom([]rune(`!#%/?\ "$&'()+,-.~09AFaf`)), rapid.Rune()))
		a, b := name.Draw(t, "a"), name.Draw(t, "b")
		if CheckName(a) != nil || CheckName(b) != nil {
			t.Skip()
		}
		for _, n := range []string{a, b} {
			if got := unescape(t, partitionOf(n)); got != n {
				t.Errorf("%q: got the partition %q, which is that of %q", n, partitionOf(n), got)
			}
			if err := channelKey(n).Check(); err != nil {
				t.Errorf("%q: got %v, want no error", n, err)
			}
		}
		if got, want := strings.Compare(partitionOf(a), partitionOf(b)), slices.Compare(ranks(a), ranks(b)); got != want {
			t.Errorf("order of %q and %q: got %d, want %d", a, b, got, want)
		}
	})
}

// ranks returns the places of a name's bytes in the order of partitions, escaped ones between the space and the others.
func ranks(name string) (all []float64) {
	for i := range len(name) {
		rank := float64(name[i])
		if strings.IndexByte(escaped, name[i]) >= 0 {
			rank = float64(' ') + rank/256
		}
		all = append(all, rank)
	}
	return all
}

// unescape is the inverse of partitionOf, and independent of it.
func unescape(t interface{ Fatalf(string, ...any) }, partition string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for rest := partition; rest != ""; {
		if rest[0] != '!' {
			b.WriteByte(rest[0])
			rest = rest[1:]
			continue
		}
		if len(rest) < 3 {
			t.Fatalf("partition %q: it ends in the middle of an escaped character", partition)
		}
		b.WriteByte(byte(strings.IndexByte(digits, rest[1])<<4 | strings.IndexByte(digits, rest[2])))
		rest = rest[3:]
	}
	return b.String()
}

// FuzzCheckName: what is accepted has a key that tables accept, from which the name comes back.
func FuzzCheckName(f *testing.F) {
	f.Add("C#")
	f.Fuzz(func(t *testing.T, name string) {
		if CheckName(name) != nil {
			return
		}
		if !utf8.ValidString(name) || strings.TrimSpace(name) == "" {
			t.Errorf("%q is accepted", name)
		}
		if err := channelKey(name).Check(); err != nil {
			t.Errorf("%q: got %v, want no error", name, err)
		}
		if got := unescape(t, partitionOf(name)); got != name {
			t.Errorf("%q: got the partition of %q", name, got)
		}
	})
}
