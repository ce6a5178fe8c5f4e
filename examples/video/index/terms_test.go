package index

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/table"
)

func TestWords(t *testing.T) {
	for text, want := range map[string][]string{
		"The Silent Sea":               {"the", "silent", "sea"},
		`O'Neil "Jr." AC/DC\x#y?z%2F*`: {"o", "neil", "jr", "ac", "dc", "x", "y", "z", "2f"},
		"ΣΊΣΥΦΟΣ Σίσυφος":              {"σίσυφοσ", "σίσυφοσ"},
		"K2 ſtone İ ǅ":                 {"k2", "stone", "i", "ǆ"}, // the Kelvin sign
		"👻👩‍🚀 1️⃣":                     {"👻👩", "🚀", "1️⃣"},
		"海は静か":                         {"海は静か"},
		"नमस्ते":                       {"नमस्ते"},
		"a\u202eb\x00c\u0085d\ufffde":  {"a", "b", "c", "d", "e"},
		"":                             nil,
		" -- ":                         nil,
		strings.Repeat("Ä", 70):        {strings.Repeat("ä", 64)},
	} {
		if got := words(text); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// Whatever character a word has, its keys are valid, its small letters are their own small letters, and the range of the
// words that begin so ends behind them.
func TestEveryCharacterOfAWordIsOfAKey(t *testing.T) {
	for r := range rune(0xe0200) { // behind which are only characters for private use
		if 0x32400 < r && r < 0xe0000 || !utf8.ValidRune(r) || !inWord(r) { // no characters are between these
			continue
		}
		small := fold(r)
		if other := unicode.SimpleFold(r); fold(small) != small || fold(other) != small {
			t.Fatalf("%q: got the small letter %q, of which %q, and %q of %q", r, small, fold(small), fold(other), other)
		}
		if !inWord(small) {
			t.Fatalf("%q: its small letter %q is no part of a word", r, small)
		}
		word := string(small)
		end := behind(word)
		q := table.Query{Partition: "title", FromRow: word, ToRow: end}
		if err := errors.Join(q.Check(), term{"title", word}.entry().Check(), term{"title", word}.posting("v").Check()); err != nil {
			t.Fatal(err)
		}
		if longer := word + string(unicode.MaxRune); longer >= end {
			t.Fatalf("%q is not before %q", longer, end)
		}
		if next, _ := utf8.DecodeRuneInString(end); next != small+1 {
			t.Fatalf("%q: got %q", word, end)
		}
	}
}

// Hostile credits are refused, in the hand of the visitor and in that of the worker, or kept as they are.
func TestHostileCredits(t *testing.T) {
	many := make([]string, maxTerms)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	long := strings.Repeat("n", maxText)
	for what, c := range map[string]Credits{
		"no title":        {},
		"blank":           {Title: " \u3000"},
		"not UTF-8":       {Title: "a\xff"},
		"a long title":    {Title: long + "n"},
		"a new line":      {Title: "a\nb"},
		"an escape":       {Title: "a\x1b[2Jb"},
		"a blank actor":   {Title: "a", Actors: []string{"b", ""}},
		"a long director": {Title: "a", Directors: []string{long + "n"}},
		"a bad keyword":   {Title: "a", Keywords: []string{"\x00"}},
		"many words":      {Title: "a", Keywords: many},
		"all too long":    {Title: "a", Actors: []string{long, long, strings.Repeat("👻", 200), strings.Repeat("👻", 200), strings.Repeat("👻", 200)}},
	} {
		if _, err := c.Metadata(); !errors.Is(err, ErrCredits) || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%s: got %v, want that it is refused on one line", what, err)
		}
	}
	for what, metadata := range map[string]map[string]string{
		"none":             nil,
		"another name":     {"title": "a"},
		"no JSON":          {"credits": "a"},
		"of another shape": {"credits": `{"title":["a"]}`},
		"blank":            {"credits": `{"title":""}`},
		"a new line":       {"credits": `{"title":"a\nb"}`},
		"two":              {"credits": `{"title":"a"} {"title":"b"}`},
		"too long":         {"credits": `{"title":"a"}` + strings.Repeat(" ", 7000)},
	} {
		if c, err := FromMetadata(metadata); !errors.Is(err, ErrCredits) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, %v; want that they are refused", what, c, err)
		}
	}
	for _, title := range []string{`/\#?"'<script>&%2e%00`, "👩‍🚀 \u202eevil", "''; DROP TABLE videos", long, "ﷺ", "\ufffd", "a\u2028b"} {
		c := Credits{Title: title, Actors: many[:20]}
		metadata, err := c.Metadata()
		if err == nil {
			err = store(metadata)
		}
		if err != nil {
			t.Errorf("%q: got %v", title, err)
		}
		if got, err := FromMetadata(metadata); err != nil || fmt.Sprint(got) != fmt.Sprint(c) {
			t.Errorf("%q: got %v, %v; want it as it was", title, got, err)
		}
		ts := newTables()
		x := ts.index(nil)
		put(t, x, "a", 1, c)
		ts.check(t, map[string]Video{"a": {Version: 1, Credits: c}})
	}
}

// store stores a blob with these metadata.
func store(metadata map[string]string) error {
	ref := blob.Ref{Container: "videos", Name: "a"}
	return blob.Memory().Put(context.Background(), ref, strings.NewReader(""), &blob.PutOptions{Metadata: metadata})
}

// Whatever is in the metadata, it is credits or refused as none; credits can be stored again, and indexed.
func FuzzCredits(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"title":"a"}`, `{"title":"\ud800","actors":["b",null]}`, `{"title":"a","title":"b"}`, `{"TITLE":"Σ"}`, `[]`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, encoded string) {
		c, err := FromMetadata(map[string]string{"credits": encoded})
		if err != nil {
			if !errors.Is(err, ErrCredits) {
				t.Errorf("%q: got %v", encoded, err)
			}
			return
		}
		metadata, err := c.Metadata()
		if err == nil {
			err = store(metadata)
		}
		if again, decoding := FromMetadata(metadata); err != nil || decoding != nil || fmt.Sprint(again) != fmt.Sprint(c) {
			t.Errorf("%q: got %v, %v; %v", encoded, again, err, decoding)
		}
		x := newTables().index(nil)
		put(t, x, "a", 1, c)
		for _, one := range c.terms() {
			q, err := ParseQuery(one.String())
			if err != nil || !q.matches(c) {
				t.Errorf("%q: the word %s is not found, %v", encoded, one, err)
			}
		}
	})
}
