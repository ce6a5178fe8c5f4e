package tabletest

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/table"
)

var argumentTests = []test{
	// Use a context that has ended: a store that tells of it has not looked at its
	// arguments first.
	{"BadKeysAreRefused", func(e *env) {
		ended, _ := e.ended()
		bad := []string{"a/b", `a\b`, "a#b", "a?b", "/", "a\x00b", "a\nb", "\t", "\x1f", "\x7f", "\u0085", "\u009f", "a\xffb"}
		for _, text := range bad {
			for _, k := range []table.Key{key("p", text), key(text, "r")} {
				for op, err := range e.calls(ended, k) {
					e.is(err, table.ErrInvalid, op, k)
				}
			}
		}
		for op, err := range e.calls(ended, table.Key{Row: "r"}) {
			e.is(err, table.ErrInvalid, op, table.Key{Row: "r"})
		}
		for _, text := range []string{strings.Repeat("k", 513), strings.Repeat("🙂", 257)} {
			for _, k := range []table.Key{key("p", text), key(text, "r")} {
				for op, err := range e.calls(ended, k) {
					e.is(err, table.ErrTooLarge, op, k)
				}
			}
		}
		e.selects(table.Query{})
	}},
	{"BadPropertiesAreRefused", func(e *env) {
		text, many := "text", properties{}
		for i := range 253 {
			many["P"+strings.Repeat("x", i)] = true
		}
		tooLarge := largest(ann.Partition, ann.Row).Properties
		tooLarge["P"] = true
		for name, c := range map[string]struct {
			p    properties
			kind error
		}{
			"an int":            {properties{"V": 1}, table.ErrInvalid},
			"a uint64":          {properties{"V": uint64(1)}, table.ErrInvalid},
			"a float32":         {properties{"V": float32(1)}, table.ErrInvalid},
			"nil":               {properties{"V": nil}, table.ErrInvalid},
			"a pointer":         {properties{"V": &text}, table.ErrInvalid},
			"a duration":        {properties{"V": time.Second}, table.ErrInvalid},
			"no UTF-8":          {properties{"V": "a\xff"}, table.ErrInvalid},
			"no number":         {properties{"V": math.NaN()}, table.ErrInvalid},
			"infinity":          {properties{"V": math.Inf(-1)}, table.ErrInvalid},
			"an early time":     {properties{"V": time.Date(1600, 12, 31, 23, 59, 59, 0, time.UTC)}, table.ErrInvalid},
			"the zero time":     {properties{"V": time.Time{}}, table.ErrInvalid},
			"a late time":       {properties{"V": time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, table.ErrInvalid},
			"no GUID":           {properties{"V": table.GUID("c9da6455")}, table.ErrInvalid},
			"no name":           {properties{"": "v"}, table.ErrInvalid},
			"a digit first":     {properties{"1a": "v"}, table.ErrInvalid},
			"a hyphen":          {properties{"a-b": "v"}, table.ErrInvalid},
			"a space":           {properties{"a b": "v"}, table.ErrInvalid},
			"a point":           {properties{"odata.type": "v"}, table.ErrInvalid},
			"a line end":        {properties{"a\n": "v"}, table.ErrInvalid},
			"a long name":       {properties{strings.Repeat("n", 256): "v"}, table.ErrInvalid},
			"the partition":     {properties{"PartitionKey": "v"}, table.ErrInvalid},
			"the row":           {properties{"RowKey": "v"}, table.ErrInvalid},
			"the time":          {properties{"Timestamp": time.Unix(0, 0)}, table.ErrInvalid},
			"a long text":       {properties{"V": strings.Repeat("t", 32<<10+1)}, table.ErrTooLarge},
			"a long wide text":  {properties{"V": strings.Repeat("🙂", 16<<10) + "t"}, table.ErrTooLarge},
			"long bytes":        {properties{"V": make([]byte, 64<<10+1)}, table.ErrTooLarge},
			"253 properties":    {many, table.ErrTooLarge},
			"more than a MiB":   {tooLarge, table.ErrTooLarge},
			"one among others":  {properties{"A": "a", "B": 1, "C": "c"}, table.ErrInvalid},
			"a slice of values": {properties{"V": []string{"a"}}, table.ErrInvalid},
		} {
			for op, err := range e.changesOf(c.p) {
				if !errors.Is(err, c.kind) {
					e.Errorf("%s: %s: %v", name, op, err)
					continue
				}
				e.is(err, c.kind, op, ann)
			}
		}
		e.hasNot(ann)
	}},
	{"BadVersionsAreRefused", func(e *env) {
		etag := e.insert(ann, nil)
		ended, _ := e.ended()
		for _, bad := range []table.ETag{"", "a\r\nb", "\x00", "ä"} {
			e.is(errorOf(e.s.Update(ended, table.Entity{Key: ann, ETag: bad})), table.ErrInvalid, "update", ann)
			e.is(e.s.Delete(ended, ann, bad), table.ErrInvalid, "delete", ann)
			for _, change := range []table.Change{table.Updating(table.Entity{Key: ann, ETag: bad}), table.Deleting(ann, bad)} {
				e.is(errorOf(e.s.Apply(ended, []table.Change{change})), table.ErrInvalid, "apply", ann)
			}
		}
		foreign := table.ETag(`W/"datetime'2026-11-23T02%3A40%3A00.1234567Z'"`)
		e.is(errorOf(e.s.Update(e.Context(), table.Entity{Key: ann, ETag: foreign})), table.ErrPreconditionFailed, "update", ann)
		e.has(ann, etag, nil)
	}},
	{"BadQueriesAreRefused", func(e *env) {
		e.fill("p", numbered(3))
		token := e.page(table.Query{Partition: "p", Top: 1}).Next
		var sixteen []table.Filter
		for range 16 {
			sixteen = append(sixteen, table.Equal("A", "a"))
		}
		ended, _ := e.ended()
		for name, q := range map[string]table.Query{
			"a negative Top":            {Top: -1},
			"a Top of 1001":             {Top: 1001},
			"rows without a partition":  {FromRow: "a"},
			"a bound without partition": {ToRow: "a"},
			"no rows":                   {Partition: "p", FromRow: "b", ToRow: "a"},
			"empty rows":                {Partition: "p", FromRow: "a", ToRow: "a"},
			"a bad partition":           {Partition: "a/b"},
			"a bad row":                 {Partition: "p", FromRow: "a/b"},
			"a bad bound":               {Partition: "p", ToRow: "a\n"},
			"a bad name":                {Partition: "p", Filter: table.Equal("a b", "v")},
			"a name with an operator":   {Partition: "p", Filter: table.Equal("a eq 1 or b", "v")},
			"a bad value":               {Partition: "p", Filter: table.Equal("A", 1)},
			"an order of bools":         {Partition: "p", Filter: table.Less("A", true)},
			"an order of bytes":         {Partition: "p", Filter: table.GreaterOrEqual("A", []byte{1})},
			"an order of GUIDs":         {Partition: "p", Filter: table.Greater("A", table.GUID("c9da6455-213d-42c9-9a79-3e9149a57833"))},
			"an and of nothing":         {Partition: "p", Filter: table.And()},
			"an or of nothing":          {Partition: "p", Filter: table.Or(table.Equal("A", "a"), table.Or())},
			"15 and a partition":        {Partition: "p", Filter: table.Or(sixteen[:15]...)},
			"16 comparisons":            {Partition: "p", Filter: table.And(table.Or(sixteen[:8]...), table.Or(sixteen[8:]...))},
			"the partition as property": {Partition: "p", Filter: table.Equal("PartitionKey", "q")},
		} {
			_, err := e.s.Query(ended, q)
			if !errors.Is(err, table.ErrInvalid) {
				e.Errorf("%s: %v", name, err)
				continue
			}
			e.is(err, table.ErrInvalid, "query", key(q.Partition, ""))
		}
		e.is(errorOf(e.s.Query(ended, table.Query{Partition: "p", FromRow: strings.Repeat("k", 513)})), table.ErrTooLarge, "query", key("p", ""))
		for _, bad := range []table.Token{"?", " ", "a b", "x\r\ny", token + "!", "ä", "../..", "&$top=1000"} {
			e.is(errorOf(e.s.Query(e.Context(), table.Query{Partition: "p", Token: bad})), table.ErrInvalid, "query", key("p", ""))
		}
	}},
	{"AnEndedContextEndsEveryCall", func(e *env) {
		etag := e.insert(bob, nil)
		for how, ctx := range suitetest.EndedContexts(e.Context()) {
			for op, err := range e.calls(ctx, ann) {
				e.matches(err, ctx, op, keyIn(err, ann))
			}
			e.matches(errorOf(e.s.Query(ctx, table.Query{Partition: "owners"})), ctx, "query", key("owners", ""))
			e.matches(e.s.Delete(ctx, bob, etag), ctx, "delete", bob)
			e.matches(errorOf(e.s.Update(ctx, table.Entity{Key: bob, ETag: etag, Properties: properties{"New": true}})), ctx, "update", bob)
			_, err := table.Modify(ctx, e.s, ann, func(*table.Entity) error { e.Error("changed"); return nil }, nil)
			for _, want := range ctx.Errors {
				if !errors.Is(err, want) {
					e.Errorf("Modify with a context %s: %v", how, err)
				}
			}
		}
		e.hasNot(ann)
		e.has(bob, etag, nil)
	}},
	{"AContextThatEndsMeanwhileEndsTheCall", func(e *env) {
		failed, ended := suitetest.EndDuring(e.Context(), 50, func(ctx context.Context) error {
			return errorOf(e.s.Insert(ctx, table.Entity{Key: key("p", rand.Text())}))
		})
		for _, err := range failed {
			known := (*table.Error)(nil)
			if !errors.As(err, &known) {
				e.Fatalf("insert: %v", err)
			}
			e.matches(err, ended, "insert", known.Key)
		}
		if stored := len(e.selected(table.Query{Partition: "p"})); stored < 50-len(failed) {
			e.Errorf("%d entities are stored after %d insertions", stored, 50-len(failed))
		}
	}},
}

// matches checks that an error says how and why its context ended.
func (e *env) matches(err error, ctx suitetest.EndedContext, op string, k table.Key) {
	e.Helper()
	for _, want := range ctx.Errors {
		e.is(err, want, op, k)
	}
}

// calls returns the errors of every call that takes a key.
func (e *env) calls(ctx context.Context, k table.Key) map[string]error {
	_, insert := e.s.Insert(ctx, table.Entity{Key: k})
	_, get := e.s.Get(ctx, k)
	_, update := e.s.Update(ctx, table.Entity{Key: k, ETag: table.Any})
	_, apply := e.s.Apply(ctx, []table.Change{table.Inserting(table.Entity{Key: k})})
	return map[string]error{"insert": insert, "get": get, "update": update, "delete": e.s.Delete(ctx, k, table.Any), "apply": apply}
}

// changesOf returns the errors of the calls that store properties.
func (e *env) changesOf(p properties) map[string]error {
	ended, _ := e.ended()
	_, insert := e.s.Insert(ended, table.Entity{Key: ann, Properties: p})
	_, update := e.s.Update(ended, table.Entity{Key: ann, Properties: p, ETag: table.Any})
	_, apply := e.s.Apply(ended, []table.Change{table.Inserting(table.Entity{Key: ann, Properties: p})})
	return map[string]error{"insert": insert, "update": update, "apply": apply}
}

// keyIn returns the key that an error must have if its call did not reach the store: of a group, none.
func keyIn(err error, k table.Key) table.Key {
	if known := (*table.Error)(nil); errors.As(err, &known) && known.Op == "apply" {
		return table.Key{}
	}
	return k
}
