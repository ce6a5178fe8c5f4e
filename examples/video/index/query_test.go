package index

import (
	"errors"
	"strings"
	"testing"
)

func TestQueries(t *testing.T) {
	for text, want := range map[string]string{
		"sea":                   "sea",
		"Title:SEA\t actor:Zoe": "title:sea actor:zoe",
		"sea-wolf*":             "sea wolf*",
		"title:o'neil":          "title:o title:neil",
		"DIRECTOR:Σίσυφος":      "director:σίσυφοσ",
		"👻*":                    "👻*",
		"se/a?#\\":              "se a",
	} {
		if q, err := ParseQuery(text); err != nil || q.String() != want {
			t.Errorf("%q: got %q, %v; want %q", text, q, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                        "it has no words",
		" \n":                     "it has no words",
		"title:":                  "no letter, digit or symbol",
		"*":                       "no letter, digit or symbol",
		"title:\ufffd":            "no letter, digit or symbol",
		"s*a":                     "has a star that is not at its end",
		"sea**":                   "has a star that is not at its end",
		"alien:covenant":          "begins with no field; there are actor",
		":sea":                    "begins with no field",
		"a b c d e f g h i j k":   "it has 11 words, and may have 10",
		"\xff":                    "is not UTF-8",
		strings.Repeat("s", 501):  "it has 501 bytes, and may have 500",
		"a:\n\x1b[2J" + "\u202eb": "begins with no field",
	} {
		if _, err := ParseQuery(text); !errors.Is(err, ErrQuery) || !strings.Contains(err.Error(), want) || strings.ContainsAny(err.Error(), "\n\x1b\u202e") {
			t.Errorf("%q: got %v, want %q on one line", text, err, want)
		}
	}
}

// Every text is a query or refused on one printable line; a query is what it says that it is, and can be asked.
func FuzzQueries(f *testing.F) {
	for _, seed := range []string{"actor:zoe title:sea", "sea*", "*", ":", "a:b", "TITLE:Σς", "\xff", "ſ K", strings.Repeat("s ", 20)} {
		f.Add(seed)
	}
	x := newTables().index(nil)
	f.Fuzz(func(t *testing.T, text string) {
		q, err := ParseQuery(text)
		if err != nil {
			if !errors.Is(err, ErrQuery) || strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("%q: got %v", text, err)
			}
			return
		}
		if len(q.String()) <= maxQuery { // a letter may be longer in its other case
			if again, err := ParseQuery(q.String()); err != nil || again.String() != q.String() {
				t.Errorf("%q: got %q again as %q, %v", text, q, again, err)
			}
		}
		if p, err := x.Search(t.Context(), q, "", 1); err != nil || len(p.Videos) > 0 {
			t.Errorf("%q: found %v, %v in an empty index", text, p, err)
		}
	})
}
