package tabletest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/table"
)

// Harness connects the suite to a store. Open is required; the zero values of the other fields describe a store in
// this process.
type Harness struct {
	// Open returns the store of an empty table. Its name is one that nobody has used, of 20 to 40 letters and
	// digits. Use t.Cleanup to clean up.
	Open func(t *testing.T, name string) table.Store

	// Bubble runs each test in a testing/synctest bubble with simulated time. The store must then be in this
	// process and read time from package time. Defaults to false.
	Bubble bool

	// Secrets are texts that errors must not contain, such as keys. Defaults to none.
	Secrets []string

	// Quirks are known differences between the store and the others.
	Quirks Quirks
}

// Quirks are known differences of a store. A field that is not empty is the reason, which the test prints. The zero
// value means none.
type Quirks struct {
	// PagesCrossPartitions: a page does not end where a partition ends.
	PagesCrossPartitions string

	// LargePages: a page may have more than 4 MiB.
	LargePages string

	// GroupsShow: a page may have a part of a group of changes.
	GroupsShow string

	// NoExponents: a filter does not compare floats that are written with an exponent.
	NoExponents string

	// CoarseTimes: a filter compares times in milliseconds.
	CoarseTimes string

	// BrokenText: characters beyond ASCII may be broken in an entity of more than 64 KiB.
	BrokenText string

	// SmallUpdates: an update of an entity of nearly 1 MiB fails.
	SmallUpdates string
}

// test is one part of the suite.
type test struct {
	name string
	run  func(e *env)
}

// Run runs the suite against a store, each test in a table of its own.
func Run(t *testing.T, h Harness) {
	all := slices.Concat(entityTests, versionTests, valueTests, keyTests, queryTests, filterTests, pageTests, groupTests,
		snapshotTests, argumentTests, modelTests)
	for _, c := range all {
		suitetest.Run(t, c.name, h.Bubble, func(t *testing.T) {
			name := "tabletest" + strings.ToLower(rand.Text())
			c.run(&env{T: t, h: h, s: h.Open(t, name), name: name})
		})
	}
}

// env is what a test works with.
type env struct {
	*testing.T
	h    Harness
	s    table.Store
	name string // of the table
}

// knownFor skips the rest of a test that a store is known not to pass.
func (e *env) knownFor(quirk string) {
	e.Helper()
	if quirk != "" {
		e.Skip("known difference: " + quirk)
	}
}

func (e *env) ok(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// is checks the kind and the form of an error: one line that names what was attempted, the table and the entity,
// without secrets. The key of a call that concerns no entity is the zero Key.
func (e *env) is(err, kind error, op string, k table.Key) {
	e.Helper()
	if !errors.Is(err, kind) {
		e.Errorf("%s of %.100q: the error is %v, want %v", op, k, err, kind)
		return
	}
	known := (*table.Error)(nil)
	if !errors.As(err, &known) {
		e.Errorf("%s of %.100q: the error %q is a %T", op, k, err, err)
		return
	}
	if known.Op != op || known.Table != e.name || known.Key != k {
		e.Errorf("the error is of %q on the table %q and the entity %.100q, want %q, %q, %.100q", known.Op, known.Table, known.Key, op, e.name, k)
	}
	text := err.Error()
	for _, part := range []string{op, e.name} {
		if !strings.Contains(text, part) {
			e.Errorf("the error %q does not say %q", text, part)
		}
	}
	if quoted := fmt.Sprintf("%.200q", k.String()); k != (table.Key{}) && !strings.Contains(text, quoted) {
		e.Errorf("the error %q does not name the entity %s", text, quoted)
	}
	// Check that a text has one line and no secrets.
	e.Helper()
	if strings.ContainsAny(text, "\r\n") {
		e.Errorf("the error has more than one line: %q", text)
	}
	for _, secret := range e.h.Secrets {
		if strings.Contains(text, secret) {
			e.Errorf("the error has a secret in it: %q", text)
		}
	}
}

// properties are short for the values of an entity.
type properties = map[string]any

func (e *env) insert(k table.Key, p properties) table.ETag {
	e.Helper()
	etag, err := e.s.Insert(e.Context(), table.Entity{Key: k, Properties: p})
	e.ok(err)
	e.version(etag)
	return etag
}

func (e *env) update(k table.Key, etag table.ETag, p properties) table.ETag {
	e.Helper()
	fresh, err := e.s.Update(e.Context(), table.Entity{Key: k, Properties: p, ETag: etag})
	e.ok(err)
	e.version(fresh)
	return fresh
}

// version checks that a text can be the version of an entity.
func (e *env) version(etag table.ETag) {
	e.Helper()
	if etag == "" || etag == table.Any || strings.ContainsFunc(string(etag), func(r rune) bool { return r < ' ' || r > '~' }) {
		e.Errorf("the version is %q", etag)
	}
}

// fill inserts entities without properties into a partition, in groups.
func (e *env) fill(partition string, rows []string) {
	e.Helper()
	for group := range slices.Chunk(rows, 100) {
		var changes []table.Change
		for _, row := range group {
			changes = append(changes, table.Inserting(table.Entity{Key: table.Key{Partition: partition, Row: row}}))
		}
		e.ok(errorOf(e.s.Apply(e.Context(), changes)))
	}
}

// numbered returns the rows "0000", "0001" and so on.
func numbered(n int) []string {
	rows := make([]string, n)
	for i := range rows {
		rows[i] = fmt.Sprintf("%04d", i)
	}
	return rows
}

func (e *env) get(k table.Key) table.Entity {
	e.Helper()
	got, err := e.s.Get(e.Context(), k)
	e.ok(err)
	return got
}

// has checks what is stored under a key.
func (e *env) has(k table.Key, etag table.ETag, p properties) {
	e.Helper()
	e.same(e.get(k), k, etag, p)
}

// hasNot checks that an entity does not exist.
func (e *env) hasNot(k table.Key) {
	e.Helper()
	got, err := e.s.Get(e.Context(), k)
	e.is(err, table.ErrMissing, "get", k)
	if err == nil {
		e.Errorf("there is %v", short(got))
	}
}

// same checks an entity that a store returned. Properties are compared with their types.
func (e *env) same(got table.Entity, k table.Key, etag table.ETag, p properties) {
	e.Helper()
	if why := differs(got, k, etag, p); why != "" {
		e.Error(why)
	}
}

// differs says how an entity that a store returned is not the one that it should be, or "".
func differs(got table.Entity, k table.Key, etag table.ETag, p properties) string {
	want := table.Entity{Properties: p}.Clone()
	switch {
	case got.Key != k || got.ETag != etag:
		return fmt.Sprintf("the entity is %.100q with the version %q, want %.100q with %q", got.Key, got.ETag, k, etag)
	case got.Properties == nil:
		return fmt.Sprintf("the properties of %.100q are nil", k)
	case !reflect.DeepEqual(got.Properties, want.Properties):
		return fmt.Sprintf("%.100q has the properties %v, want %v", k, short(got), short(want))
	case got.Modified.IsZero() || got.Modified.Location() != time.UTC:
		return fmt.Sprintf("%.100q was modified at %v", k, got.Modified)
	}
	return ""
}

// short returns the properties of an entity as text that does not fill the screen.
func short(e table.Entity) string { return fmt.Sprintf("%.1000s", fmt.Sprintf("%#v", e.Properties)) }

// page reads one page and checks what every page must be.
func (e *env) page(q table.Query) table.Page {
	e.Helper()
	p, err := e.s.Query(e.Context(), q)
	e.ok(err)
	limit := cmp.Or(q.Top, 1000)
	if len(p.Entities) > limit {
		e.Errorf("a page has %d entities, and may have %d", len(p.Entities), limit)
	}
	if strings.ContainsFunc(string(p.Next), func(r rune) bool { return r > '~' || !strings.ContainsRune(tokenCharacters, r) }) {
		e.Errorf("the token %q has characters that JSON or a URL escapes", p.Next)
	}
	return p
}

// tokenCharacters are those that neither JSON nor a URL escapes, by RFC 3986, section 2.3.
const tokenCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"

func (e *env) pages(q table.Query) (all []table.Page) {
	e.Helper()
	for {
		p := e.page(q)
		all = append(all, p)
		if p.Next == "" {
			return all
		}
		if len(all) > 10_000 {
			e.Fatal("the pages do not end")
		}
		q.Token = p.Next
	}
}

// select returns the keys of all entities that a query selects, as text.
func (e *env) selected(q table.Query) []string {
	e.Helper()
	return keys(e.pages(q)...)
}

func keys(pages ...table.Page) []string {
	found := []string{}
	for _, p := range pages {
		for _, got := range p.Entities {
			found = append(found, got.Key.String())
		}
	}
	return found
}

func (e *env) selects(q table.Query, want ...string) {
	e.Helper()
	if got := e.selected(q); !slices.Equal(got, want) {
		e.Errorf("the query %v selects %.500q, want %.500q", q, got, want)
	}
}

func key(partition, row string) table.Key { return table.Key{Partition: partition, Row: row} }

// at returns what a test of contexts works with: a context that has ended, and why.
func (e *env) ended() (ctx context.Context, why error) {
	why = errors.New("the worker stops")
	ctx, cancel := context.WithCancelCause(e.Context())
	cancel(why)
	return ctx, why
}

var snapshotTests = []test{
	// A writer gives the entities of a partition the same number again and
	// again, in groups, and inserts or deletes one of them, while readers look. A round
	// begins when a reader does.
	{"APageHasNoPartOfAGroup", func(e *env) {
		e.knownFor(e.h.Quirks.GroupsShow)
		const entities, rounds = 10, 60
		rows := numbered(entities)
		e.fill("p", rows)
		e.round(rows, 0)
		looking := make(chan bool)
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				for ok := true; <-looking; {
					ok = ok && e.whole(entities)
				}
			})
		}
		for n := range int32(rounds) {
			looking <- true
			e.round(rows, n+1)
		}
		close(looking)
		all.Wait()
	}},
	// A change between two pages shows in the second, and the reader did not hold it up.
	{"TwoPagesAreNotOneSnapshot", func(e *env) {
		e.fill("p", numbered(4))
		q := table.Query{Partition: "p", Top: 2}
		p := e.page(q)
		fresh := e.update(key("p", "0003"), table.Any, properties{"New": true})
		e.update(key("p", "0000"), table.Any, properties{"New": true})
		q.Token = p.Next
		p = e.page(q)
		if len(p.Entities) != 2 {
			e.Fatalf("the second page has %q", keys(p))
		}
		e.same(p.Entities[1], key("p", "0003"), fresh, properties{"New": true})
	}},
}

// round gives all entities a number in one group. Even rounds have one entity more.
func (e *env) round(rows []string, n int32) {
	e.Helper()
	var group []table.Change
	for _, row := range rows {
		group = append(group, table.Updating(table.Entity{Key: key("p", row), Properties: properties{"N": n}, ETag: table.Any}))
	}
	extra := key("p", "extra")
	if n%2 == 0 {
		group = append(group, table.Inserting(table.Entity{Key: extra, Properties: properties{"N": n}}))
	} else {
		group = append(group, table.Deleting(extra, table.Any))
	}
	if _, err := e.s.Apply(e.Context(), group); err != nil {
		e.Error(err)
	}
}

// whole reads a page and reports whether all of it is of one round.
func (e *env) whole(entities int) bool {
	p, err := e.s.Query(e.Context(), table.Query{Partition: "p"})
	if err != nil || len(p.Entities) < entities {
		e.Errorf("a page has %d entities: %v", len(p.Entities), err)
		return false
	}
	n := p.Entities[0].Properties["N"]
	for _, got := range p.Entities {
		if got.Properties["N"] != n {
			e.Errorf("a page has an entity of the round %v and one of %v", n, got.Properties["N"])
			return false
		}
	}
	if round, _ := n.(int32); len(p.Entities)-entities != int(1-round%2) {
		e.Errorf("in the round %v, a page has %d entities", n, len(p.Entities))
		return false
	}
	return true
}

func errorOf[T any](_ T, err error) error { return err }
