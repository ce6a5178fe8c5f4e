package table_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/table"
)

// entitiesOf yields entities with these keys and counts how many were read.
func entitiesOf(read *int, keys ...table.Key) iter.Seq2[table.Entity, error] {
	return func(yield func(table.Entity, error) bool) {
		for _, k := range keys {
			*read++
			if !yield(table.Entity{Key: k, Properties: map[string]any{"Row": k.Row}}, nil) {
				return
			}
		}
	}
}

// rowsOf returns the keys of a partition's rows.
func rowsOf(partition string, n int) []table.Key {
	keys := make([]table.Key, n)
	for i := range keys {
		keys[i] = table.Key{Partition: partition, Row: fmt.Sprintf("%05d", i)}
	}
	return keys
}

// TestAPageEndsWhereTheServiceMayEndIt settles T-06, T-07 and T-09: the token is that of the first entity after the page.
func TestAPageEndsWhereTheServiceMayEndIt(t *testing.T) {
	p := rowsOf("p", 12_000)
	none := table.Equal("Row", "none")
	for name, c := range map[string]struct {
		query    table.Query
		entities []table.Key
		want     int       // entities of the page
		next     table.Key // the zero Key for none
		read     int
	}{
		"nothing":                    {table.Query{}, nil, 0, table.Key{}, 0},
		"fewer than Top":             {table.Query{Top: 4}, p[:3], 3, table.Key{}, 3},
		"Top and nothing else":       {table.Query{Top: 3}, p[:3], 3, table.Key{}, 3},
		"Top and more":               {table.Query{Top: 3}, p[:4], 3, p[3], 4},
		"Top and much more":          {table.Query{Top: 3}, p, 3, p[3], 4},
		"1,000":                      {table.Query{}, p[:1000], 1000, table.Key{}, 1000},
		"1,001":                      {table.Query{}, p[:1001], 1000, p[1000], 1001},
		"the end of a partition":     {table.Query{}, append(p[:2:2], rowsOf("q", 2)...), 2, table.Key{Partition: "q", Row: "00000"}, 3},
		"a partition of Top":         {table.Query{Top: 2}, append(p[:2:2], rowsOf("q", 2)...), 2, table.Key{Partition: "q", Row: "00000"}, 3},
		"the end of its partition":   {table.Query{Partition: "p"}, append(p[:2:2], rowsOf("q", 2)...), 2, table.Key{}, 3},
		"the end of its rows":        {table.Query{Partition: "p", ToRow: "00002"}, p, 2, table.Key{}, 3},
		"Top at the end of its rows": {table.Query{Partition: "p", ToRow: "00002", Top: 2}, p, 2, table.Key{}, 3},
		"nothing in a partition":     {table.Query{Filter: none}, append(p[:2:2], rowsOf("q", 2)...), 0, table.Key{Partition: "q", Row: "00000"}, 3},
		"nothing at the end":         {table.Query{Filter: none}, p[:2], 0, table.Key{}, 2},
		"nothing in 10,000":          {table.Query{Filter: none}, p, 0, p[10_000], 10_001},
		"nothing in all 10,000":      {table.Query{Filter: none}, p[:10_000], 0, table.Key{}, 10_000},
		"one and then nothing":       {table.Query{Filter: table.Equal("Row", "00000")}, p, 1, p[10_000], 10_001},
		"Top and then no match":      {table.Query{Filter: table.LessOrEqual("Row", "00002"), Top: 3}, p[:9], 3, p[3], 4},
	} {
		read := 0
		page, err := c.query.Collect(entitiesOf(&read, c.entities...))
		if err != nil {
			t.Fatal(err)
		}
		next := table.Token("")
		if c.next != (table.Key{}) {
			next = table.TokenFor(c.next)
		}
		if len(page.Entities) != c.want || page.Next != next || read != c.read {
			t.Errorf("%s: %d entities, the token %q, %d read; want %d, %q, %d", name, len(page.Entities), page.Next, read, c.want, next, c.read)
		}
		for i, e := range page.Entities {
			if e.Key != c.entities[i] {
				t.Fatalf("%s: entity %d is %v", name, i, e.Key)
			}
		}
	}
}

// TestAPageHasFourMebibytes settles T-07. What the filter leaves out has a negative size here, and does not count.
func TestAPageHasFourMebibytes(t *testing.T) {
	const quarter = 1 << 20
	for name, c := range map[string]struct {
		sizes    []int
		want     int
		complete bool
	}{
		"exactly 4 MiB":       {[]int{quarter, quarter, quarter, quarter}, 4, true},
		"a byte more":         {[]int{quarter, quarter, quarter, quarter - 99, 100}, 4, false},
		"a large one behind":  {[]int{100, quarter, quarter, quarter, quarter}, 4, false},
		"one too large":       {[]int{5 * quarter, 100}, 1, false},
		"what does not match": {[]int{quarter, quarter, quarter, quarter - 1000, -quarter, 1000}, 5, true},
	} {
		page, err := table.Query{Filter: table.Equal("Match", true)}.Collect(func(yield func(table.Entity, error) bool) {
			for i, size := range c.sizes {
				if !yield(ofSize(fmt.Sprint(i), size), nil) {
					return
				}
			}
		})
		if err != nil || len(page.Entities) != c.want || (page.Next == "") != c.complete {
			t.Errorf("%s: %d entities and the token %q: %v", name, len(page.Entities), page.Next, err)
		}
	}
}

// ofSize returns an entity of a size, which matches unless that is negative.
func ofSize(row string, size int) table.Entity {
	e := table.Entity{Key: table.Key{Partition: "p", Row: row}, Properties: map[string]any{"Match": size > 0, "V": []byte{}}}
	e.Properties["V"] = bytes.Repeat([]byte{1}, max(size, -size)-e.Size())
	return e
}

func TestCollectReturnsTheFirstError(t *testing.T) {
	why := errors.New("the disk is broken")
	page, err := table.Query{}.Collect(func(yield func(table.Entity, error) bool) {
		_ = yield(table.Entity{Key: table.Key{Partition: "p"}}, nil) && yield(table.Entity{}, why) && yield(table.Entity{}, errors.New("another"))
	})
	if !errors.Is(err, why) || page.Entities != nil || page.Next != "" {
		t.Errorf("got %v, %v", page, err)
	}
}

// TestATokenLiesWhereThePageEnded settles T-09: what is inserted between the page and the token's key is in no page.
func TestATokenLiesWhereThePageEnded(t *testing.T) {
	s := table.Memory("letters")
	insert := func(row string) {
		if _, err := s.Insert(t.Context(), table.Entity{Key: table.Key{Partition: "p", Row: row}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []string{"b", "d", "f"} {
		insert(row)
	}
	q := table.Query{Partition: "p", Top: 2}
	page, err := s.Query(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{"a", "c", "e", "ez", "g"} {
		insert(row)
	}
	q.Token = page.Next
	var got []string
	for e, err := range table.All(t.Context(), s, q) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Row)
	}
	if !slices.Equal(got, []string{"f", "g"}) {
		t.Errorf("behind the token are %q", got)
	}
}

// FuzzToken: a token is refused, or it is exactly that of its key.
func FuzzToken(f *testing.F) {
	for _, text := range []string{"", "AA", "cABy", "cABy\n", "cABy==", "cABz", "c\x00", "../", "cC9xAHI", "____"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		k, err := table.Token(text).Key()
		if err != nil {
			if !errors.Is(err, table.ErrInvalid) || k != (table.Key{}) || strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("%q: %v, %v", text, k, err)
			}
			return
		}
		if k.Check() != nil || table.TokenFor(k) != table.Token(text) {
			t.Errorf("%q is read as %q", text, k)
		}
	})
}

func TestTokensComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[^\x00-\x1f\x7f-\x9f/\\#?]{0,20}`)
		k := table.Key{Partition: "p" + text.Draw(t, "partition"), Row: text.Draw(t, "row")}
		token := table.TokenFor(k)
		if got, err := token.Key(); err != nil || got != k {
			t.Fatalf("%q came back as %q: %v", k, got, err)
		}
		if url.QueryEscape(string(token)) != string(token) {
			t.Fatalf("a URL escapes %q", token)
		}
		if text, err := json.Marshal(token); err != nil || string(text) != `"`+string(token)+`"` {
			t.Fatalf("JSON escapes %q: %s, %v", token, text, err)
		}
		other := table.Key{Partition: "p" + text.Draw(t, "other partition"), Row: text.Draw(t, "other row")}
		if other != k && table.TokenFor(other) == token {
			t.Fatalf("%q and %q have one token", k, other)
		}
	})
}

func TestHostileTokensAreRefused(t *testing.T) {
	good := string(table.TokenFor(table.Key{Partition: "p", Row: "r"}))
	encode := base64.RawURLEncoding.EncodeToString
	for name, token := range map[string]string{
		"a line end":          good + "\n",
		"padding":             good + "=",
		"unused bits":         string(table.TokenFor(table.Key{Partition: "p", Row: ""}))[:2] + "B",
		"no separator":        encode([]byte("p")),
		"no partition":        encode([]byte("\x00r")),
		"a slash":             encode([]byte("p\x00a/b")),
		"a second separator":  encode([]byte("p\x00a\x00b")),
		"no UTF-8":            encode([]byte("p\x00\xff")),
		"a key of a megabyte": encode([]byte("p\x00" + strings.Repeat("r", 1<<20))),
		"standard base64":     base64.RawStdEncoding.EncodeToString([]byte("p\x00~~~~")),
	} {
		_, err := table.Token(token).Key()
		if !errors.Is(err, table.ErrInvalid) || len(err.Error()) > 1000 {
			t.Errorf("%s: %.1000v", name, err)
		}
		if _, err := table.Memory("m").Query(t.Context(), table.Query{Token: table.Token(token)}); !errors.Is(err, table.ErrInvalid) {
			t.Errorf("%s: the query: %.1000v", name, err)
		}
	}
}

// TestATokenOfAnotherQueryIsRefused where that can be told.
func TestATokenOfAnotherQueryIsRefused(t *testing.T) {
	at := func(partition, row string) table.Token {
		return table.TokenFor(table.Key{Partition: partition, Row: row})
	}
	for name, c := range map[string]struct {
		query table.Query
		start table.Key // the zero Key if it is refused
	}{
		"of the table":            {table.Query{Token: at("p", "r")}, table.Key{Partition: "p", Row: "r"}},
		"of the partition":        {table.Query{Partition: "p", Token: at("p", "r")}, table.Key{Partition: "p", Row: "r"}},
		"the first row":           {table.Query{Partition: "p", FromRow: "r", Token: at("p", "r")}, table.Key{Partition: "p", Row: "r"}},
		"the last row":            {table.Query{Partition: "p", ToRow: "s", Token: at("p", "r\u9999")}, table.Key{Partition: "p", Row: "r\u9999"}},
		"the partition before":    {table.Query{Partition: "p", Token: at("o", "r")}, table.Key{}},
		"the partition after":     {table.Query{Partition: "p", Token: at("q", "")}, table.Key{}},
		"before the first row":    {table.Query{Partition: "p", FromRow: "r", Token: at("p", "q")}, table.Key{}},
		"at the end of the range": {table.Query{Partition: "p", ToRow: "s", Token: at("p", "s")}, table.Key{}},
	} {
		start, err := c.query.Start()
		if refused := c.start == (table.Key{}); start != c.start || errors.Is(err, table.ErrInvalid) != refused || err != nil != refused {
			t.Errorf("%s: %v, %v", name, start, err)
		}
	}
	if start, err := (table.Query{Partition: "p", FromRow: "r"}).Start(); err != nil || start != (table.Key{Partition: "p", Row: "r"}) {
		t.Errorf("without a token: %v, %v", start, err)
	}
}

// TestAQueryIsReadWhole: pages of any size, over any entities and any filter, have each entity once.
func TestAQueryIsReadWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.Custom(func(t *rapid.T) table.Key {
			return table.Key{Partition: rapid.StringMatching(`[ab]{1,2}`).Draw(t, "partition"), Row: rapid.StringMatching(`[ab]{0,3}`).Draw(t, "row")}
		})
		all := rapid.SliceOfNDistinct(key, 0, 20, rapid.ID).Draw(t, "keys")
		slices.SortFunc(all, table.Key.Compare)
		q := table.Query{Top: rapid.IntRange(1, 5).Draw(t, "top"), Filter: table.NotEqual("Row", rapid.StringMatching(`[ab]?`).Draw(t, "left out"))}
		var got, want []table.Key
		read := 0
		for e := range entitiesOf(&read, all...) {
			if q.Filter.Match(e) {
				want = append(want, e.Key)
			}
		}
		for range 1000 {
			start, err := q.Start()
			if err != nil {
				t.Fatal(err)
			}
			first, _ := slices.BinarySearchFunc(all, start, table.Key.Compare)
			page, _ := q.Collect(entitiesOf(&read, all[first:]...))
			for _, e := range page.Entities {
				got = append(got, e.Key)
			}
			if q.Token = page.Next; q.Token == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("the pages have %v, want %v", got, want)
		}
	})
}

// What the filter leaves out does not count towards the 4 MiB of a page.
func TestWhatAFilterLeavesOutTakesNoRoomInAPage(t *testing.T) {
	large := func(row string, wanted bool) table.Entity {
		e := table.Entity{Key: table.Key{Partition: "p", Row: row}, Properties: map[string]any{"wanted": wanted}}
		for name := 'a'; name < 'a'+15; name++ {
			e.Properties[string(name)] = make([]byte, 64<<10)
		}
		return e
	}
	q := table.Query{Filter: table.Equal("wanted", true)}
	p, err := q.Collect(iter.Seq2[table.Entity, error](func(yield func(table.Entity, error) bool) {
		for i, row := range strings.Split("abcdefghij", "") {
			if !yield(large(row, i%2 == 0 && i < 8), nil) {
				return
			}
		}
	}))
	if err != nil || len(p.Entities) != 4 || p.Next != "" {
		t.Errorf("got %d entities, the next page at %q, %v; want the 4 that match, less than 4 MiB, and no other page", len(p.Entities), p.Next, err)
	}
}
