package internal_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/queue/driver"
)

// itemSet draws a set of n items.
func itemSet(t *rapid.T, n int, label string) envelope.ItemSet {
	in := rapid.MapOf(rapid.IntRange(0, n-1), rapid.Just(true)).Draw(t, label)
	return envelope.NewItemSet(n, func(i int) bool { return in[i] })
}

// O-02: what goes into a group comes out, item by item, whatever the bytes.
func TestAGroupKeepsItsItems(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := envelope.Group(rapid.SliceOfN(rapid.SliceOf(rapid.Byte()), 1, 50).Draw(t, "items"))
		body := want.Encode()
		got, err := envelope.DecodeGroup(body, len(want))
		if err != nil || !slices.EqualFunc(got, want, bytes.Equal) {
			t.Fatalf("got %q, %v\nwant %q", got, err, want)
		}
		for _, n := range []int{len(want) - 1, len(want) + 1, 0, -1} {
			if _, err := envelope.DecodeGroup(body, n); err == nil {
				t.Fatalf("a group of %d is opened as one of %d", len(want), n)
			}
		}
		if cut := rapid.IntRange(0, len(body)-1).Draw(t, "cut"); cut > 0 {
			if got, err := envelope.DecodeGroup(body[:cut], len(want)); err == nil {
				t.Fatalf("%q, cut after %d bytes, is opened as %q", body, cut, got)
			}
		}
		got[0] = append(got[0], "more"...) // must not write into the next item
		if again, err := envelope.DecodeGroup(body, len(want)); err != nil || !slices.EqualFunc(again, want, bytes.Equal) {
			t.Fatalf("after an append to an item: got %q, %v", again, err)
		}
	})
}

// Items of text make a body of text: it needs no Base64, which would make it a third larger.
func TestAGroupOfTextIsText(t *testing.T) {
	g := envelope.Group{[]byte(`{"a":1}`), {}, []byte("two\nlines\t"), []byte("grüße")}
	text, err := envelope.Seal(envelope.Head{Items: len(g)}, g.Encode(), codec.Envelope)
	if want := "millrace/2?gr=4\n7:{\"a\":1}\n0:\n10:two\nlines\t\n7:grüße\n"; err != nil || text != want || driver.CheckText(text) != nil {
		t.Errorf("got %q, %v\nwant %q", text, err, want)
	}
}

func TestABrokenGroupSaysWhereAndWhy(t *testing.T) {
	for body, want := range map[string]string{
		"":                  "it has 0 items, and the head says 2",
		"1:a\n":             "it has 1 items, and the head says 2",
		"1:a\n1:b\n1:c\n":   "it has 3 items, and the head says 2",
		"1:a\n2:b\n":        "item 1, at byte 4: it does not end after the 2 bytes",
		"1:a\n0:b\n":        "item 1, at byte 4: it does not end after the 0 bytes",
		"1:a\n1:b":          "item 1, at byte 4: it does not end after the 1 bytes",
		"1:a\n1:":           "does not end",
		"1:a\n1":            "item 1, at byte 4: it does not begin with a length and a colon",
		"1:a\n:b\n":         "its length is no number",
		"1:a\n01:b\n":       "its length is no number",
		"1:a\n+1:b\n":       "its length is no number",
		"1:a\n-1:b\n":       "its length is no number",
		"1:a\n1 :b\n":       "its length is no number",
		"1:a\n1000000000:b": "it does not begin with a length and a colon",
		"1:a\n999999999:b":  "it does not end after the 999999999 bytes",
		`[{"a":1},{"b":2}]`: "item 0, at byte 0: its length is no number",
	} {
		if g, err := envelope.DecodeGroup([]byte(body), 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %q, %v; want %q", body, g, err, want)
		}
	}
}

// Equal sets are equal, and a set has exactly the items that it was made of.
func TestAnItemSetHasItsItems(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 100).Draw(t, "n")
		in := rapid.SliceOfN(rapid.Bool(), n, n).Draw(t, "in")
		s := envelope.NewItemSet(n, func(i int) bool { return in[i] })
		count := 0
		for i := -9; i < n+20; i++ {
			want := i >= 0 && i < n && in[i]
			if s.Has(i) != want {
				t.Fatalf("item %d: got %v, want %v", i, s.Has(i), want)
			}
			if want {
				count++
			}
		}
		if s.Len() != count || s != envelope.NewItemSet(n+8, func(i int) bool { return i < n && in[i] }) || (s == "") != (count == 0) {
			t.Fatalf("%q has %d items, want %d", string(s), s.Len(), count)
		}
	})
}

// A failure is cut between characters, and only if it must be.
func TestAFailureIsShortened(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "item 3: no": "item 3: no", "a\xffb": "a\uFFFDb",
		strings.Repeat("x", 240): strings.Repeat("x", 240), strings.Repeat("x", 241): strings.Repeat("x", 240),
		"x" + strings.Repeat("ü", 100): "x" + strings.Repeat("ü", 39),
	} {
		if got := envelope.ShortFailure(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// FuzzGroup: whatever is opened as a group is what the items make again, byte by byte.
func FuzzGroup(f *testing.F) {
	f.Add([]byte("2:{}\n0:\n"), 2)
	f.Add([]byte("10:0123456789\n"), 1)
	f.Fuzz(func(t *testing.T, body []byte, items int) {
		g, err := envelope.DecodeGroup(body, items)
		if err != nil {
			return
		}
		if again := g.Encode(); len(g) != items || !bytes.Equal(again, body) {
			t.Fatalf("%q of %d items: opened as %q, which makes %q", body, items, g, again)
		}
	})
}

func Example_envelopeOfAGroup() {
	body := envelope.Group{[]byte(`{"ID":"7"}`), []byte(`{"ID":"8"}`)}.Encode()
	text, err := envelope.Seal(envelope.Head{Items: 2}, body, codec.Envelope)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(text)

	head, body, _, err := envelope.Open(text, codec.Auto, envelope.Groups)
	if err != nil {
		fmt.Println(err)
		return
	}
	items, err := envelope.DecodeGroup(body, head.Items)
	fmt.Println(string(items[1]), err)
	// Output:
	// millrace/2?gr=2
	// 10:{"ID":"7"}
	// 10:{"ID":"8"}
	// {"ID":"8"} <nil>
}

// A group of more items than a head can record is refused before any of them is handled.
func TestAGroupOfTooManyItemsIsRefused(t *testing.T) {
	for _, c := range []struct {
		items   int
		refused bool
	}{{envelope.MaxItems, false}, {envelope.MaxItems + 1, true}} {
		g := make(envelope.Group, c.items)
		if _, err := envelope.DecodeGroup(g.Encode(), c.items); (err != nil) != c.refused {
			t.Errorf("%d items: got error %v, want one: %v", c.items, err, c.refused)
		}
	}
}
