package tabletest

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/table"
)

var modelTests = []test{{"AnyHistoryFollowsTheModel", func(e *env) {
	if testing.Short() {
		e.Skip("thousands of calls")
	}
	rapid.Check(noDeadline{e.T}, func(t *rapid.T) {
		e.empty()
		m := &model{e: e, entities: map[table.Key]modelled{}, seen: map[version]bool{}}
		t.Repeat(map[string]func(*rapid.T){
			"insert": m.insert,
			"get":    m.get,
			"update": m.update,
			"delete": m.remove,
			"apply":  m.apply,
			"select": m.selectAll,
			"page":   m.page,
		})
	})
}}}

// noDeadline hides the Deadline method, which rapid calls and a bubble does not support.
type noDeadline struct{ rapid.TB }

func (e *env) empty() {
	for got, err := range table.All(e.Context(), e.s, table.Query{}) {
		e.ok(err)
		e.ok(e.s.Delete(e.Context(), got.Key, got.ETag))
	}
}

// model is a simple model of a table.
type model struct {
	e        *env
	entities map[table.Key]modelled
	seen     map[version]bool // all versions that there were
	stale    []table.ETag     // some of them that are gone
	scan     *scan            // nil if there is none
}

// version is that of one entity: two entities that a group changes may have the same.
type version struct {
	of   table.Key
	etag table.ETag
}

// modelled is an entity of the model.
type modelled struct {
	properties properties
	etag       table.ETag
}

// scan is a query that is read page by page while the table changes.
type scan struct {
	query  table.Query
	wanted func(table.Key, properties) bool
	last   table.Key          // of the pages so far
	stable map[table.Key]bool // matched at the beginning and were never changed, and are still to come
}

func drawKey(t *rapid.T) table.Key {
	return key(drawPartition(t), rapid.SampledFrom([]string{"", "a", "b", "ba", "c"}).Draw(t, "row"))
}

func drawPartition(t *rapid.T) string {
	return rapid.SampledFrom([]string{"p", "q"}).Draw(t, "partition")
}

func drawProperties(t *rapid.T) properties {
	p := properties{}
	if rapid.Bool().Draw(t, "with N") {
		p["N"] = rapid.Int32Range(0, 3).Draw(t, "N")
	}
	if rapid.Bool().Draw(t, "with Text") {
		p["Text"] = rapid.SampledFrom([]string{"", "a", "b'c"}).Draw(t, "Text")
	}
	return p
}

// drawVersion returns the current version of an entity, Any, or one that is gone.
func (m *model) drawVersion(t *rapid.T, k table.Key) table.ETag {
	choice := []table.ETag{table.Any}
	if now, exists := m.entities[k]; exists {
		choice = append(choice, now.etag, now.etag)
	}
	if n := len(m.stale); n > 0 {
		choice = append(choice, m.stale[n-1], m.stale[n/2])
	}
	return rapid.SampledFrom(choice).Draw(t, "version")
}

func (m *model) drawChange(t *rapid.T, k table.Key) table.Change {
	switch rapid.IntRange(0, 2).Draw(t, "kind") {
	case 0:
		return table.Inserting(table.Entity{Key: k, Properties: drawProperties(t)})
	case 1:
		return table.Updating(table.Entity{Key: k, Properties: drawProperties(t), ETag: m.drawVersion(t, k)})
	}
	return table.Deleting(k, m.drawVersion(t, k))
}

// refusal returns why the model refuses a change, or nil.
func (m *model) refusal(c table.Change) error {
	now, exists := m.entities[c.Entity().Key]
	switch expected := c.Entity().ETag; {
	case c.Inserts() && exists:
		return table.ErrExists
	case c.Inserts():
		return nil
	case !exists:
		return table.ErrMissing
	case expected != table.Any && expected != now.etag:
		return table.ErrPreconditionFailed
	}
	return nil
}

// changed makes a change in the model that the store has made.
func (m *model) changed(t *rapid.T, c table.Change, etag table.ETag) {
	k := c.Entity().Key
	if now, exists := m.entities[k]; exists {
		m.stale = append(m.stale, now.etag)
	}
	if m.scan != nil {
		delete(m.scan.stable, k)
	}
	if c.Deletes() {
		if etag != "" {
			t.Fatalf("the version of a deleted entity is %q", etag)
		}
		delete(m.entities, k)
		return
	}
	if m.seen[version{k, etag}] || etag == "" {
		t.Fatalf("%s got the version %q again", k, etag)
	}
	m.seen[version{k, etag}] = true
	m.entities[k] = modelled{c.Entity().Properties, etag}
}

func (m *model) one(t *rapid.T, c table.Change, op string, act func() (table.ETag, error)) {
	etag, err := act()
	if want := m.refusal(c); want != nil {
		m.e.is(err, want, op, c.Entity().Key)
		if !errors.Is(err, want) {
			t.Fatalf("%s of %s: %v, want %v", op, c.Entity().Key, err, want)
		}
		return
	}
	if err != nil {
		t.Fatalf("%s of %s: %v", op, c.Entity().Key, err)
	}
	m.changed(t, c, etag)
}

func (m *model) insert(t *rapid.T) {
	entity := table.Entity{Key: drawKey(t), Properties: drawProperties(t)}
	m.one(t, table.Inserting(entity), "insert", func() (table.ETag, error) { return m.e.s.Insert(m.e.Context(), entity) })
}

func (m *model) update(t *rapid.T) {
	entity := table.Entity{Key: drawKey(t), Properties: drawProperties(t)}
	entity.ETag = m.drawVersion(t, entity.Key)
	m.one(t, table.Updating(entity), "update", func() (table.ETag, error) { return m.e.s.Update(m.e.Context(), entity) })
}

func (m *model) remove(t *rapid.T) {
	k := drawKey(t)
	etag := m.drawVersion(t, k)
	m.one(t, table.Deleting(k, etag), "delete", func() (table.ETag, error) { return "", m.e.s.Delete(m.e.Context(), k, etag) })
}

func (m *model) apply(t *rapid.T) {
	partition := drawPartition(t)
	rows := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"", "a", "b", "ba", "c"}), 1, 4, rapid.ID).Draw(t, "rows")
	var group []table.Change
	refused := map[table.Key]error{}
	for _, row := range rows {
		c := m.drawChange(t, key(partition, row))
		group = append(group, c)
		if why := m.refusal(c); why != nil {
			refused[c.Entity().Key] = why
		}
	}
	etags, err := m.e.s.Apply(m.e.Context(), group)
	if len(refused) > 0 {
		if known := (*table.Error)(nil); !errors.As(err, &known) || refused[known.Key] == nil || !errors.Is(err, refused[known.Key]) {
			t.Fatalf("a group that must fail with one of %v: %v", refused, err)
		}
		return
	}
	if err != nil || len(etags) != len(group) {
		t.Fatalf("a group: %q, %v", etags, err)
	}
	for i, c := range group {
		m.changed(t, c, etags[i])
	}
}

func (m *model) get(t *rapid.T) {
	k := drawKey(t)
	got, err := m.e.s.Get(m.e.Context(), k)
	if _, exists := m.entities[k]; !exists {
		if !errors.Is(err, table.ErrMissing) {
			t.Fatalf("%s does not exist, and the error is %v", k, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	m.check(t, got)
}

// check compares what the store returned with the model.
func (m *model) check(t *rapid.T, got table.Entity) {
	want, exists := m.entities[got.Key]
	if !exists {
		t.Fatalf("there is %s, which does not exist", got.Key)
	}
	if why := differs(got, got.Key, want.etag, want.properties); why != "" {
		t.Fatal(why)
	}
}

func drawQuery(t *rapid.T) (q table.Query, wanted func(table.Key, properties) bool) {
	q.Top = rapid.SampledFrom([]int{0, 1, 2, 3}).Draw(t, "top")
	inRange := func(table.Key) bool { return true }
	if rapid.Bool().Draw(t, "in a partition") {
		q.Partition = drawPartition(t)
		bounds := rapid.SampledFrom([][2]string{{"", ""}, {"a", ""}, {"", "b"}, {"a", "c"}, {"b", "bb"}}).Draw(t, "range")
		q.FromRow, q.ToRow = bounds[0], bounds[1]
		inRange = func(k table.Key) bool {
			return k.Partition == q.Partition && k.Row >= q.FromRow && (q.ToRow == "" || k.Row < q.ToRow)
		}
	}
	matches := func(properties) bool { return true }
	switch rapid.IntRange(0, 2).Draw(t, "filter") {
	case 1:
		n := rapid.Int32Range(0, 3).Draw(t, "N")
		q.Filter = table.GreaterOrEqual("N", n)
		matches = func(p properties) bool { got, ok := p["N"].(int32); return ok && got >= n }
	case 2:
		q.Filter = table.Or(table.NotEqual("Text", "b'c"), table.Equal("N", int32(1)))
		matches = func(p properties) bool {
			text, ok := p["Text"].(string)
			return ok && text != "b'c" || p["N"] == int32(1)
		}
	}
	return q, func(k table.Key, p properties) bool { return inRange(k) && matches(p) }
}

// wants returns the keys of the model that a query wants, in order.
func (m *model) wants(wanted func(table.Key, properties) bool) []table.Key {
	var found []table.Key
	for k, of := range m.entities {
		if wanted(k, of.properties) {
			found = append(found, k)
		}
	}
	slices.SortFunc(found, table.Key.Compare)
	return found
}

// selectAll reads all pages of a query while nothing changes.
func (m *model) selectAll(t *rapid.T) {
	q, wanted := drawQuery(t)
	var got []table.Key
	for entity, err := range table.All(m.e.Context(), m.e.s, q) {
		if err != nil {
			t.Fatal(err)
		}
		m.check(t, entity)
		got = append(got, entity.Key)
	}
	if want := m.wants(wanted); !slices.Equal(got, want) {
		t.Fatalf("the query %v selects %v, want %v", q, got, want)
	}
}

// page reads the next page of a query that lasts while the table changes.
func (m *model) page(t *rapid.T) {
	if m.scan == nil {
		s := &scan{stable: map[table.Key]bool{}}
		s.query, s.wanted = drawQuery(t)
		for _, k := range m.wants(s.wanted) {
			s.stable[k] = true
		}
		m.scan = s
	}
	s := m.scan
	p, err := m.e.s.Query(m.e.Context(), s.query)
	if err != nil {
		t.Fatal(err)
	}
	if s.query.Top > 0 && len(p.Entities) > s.query.Top {
		t.Fatalf("a page of %d has %d entities", s.query.Top, len(p.Entities))
	}
	m.advance(t, p)
	if s.query.Token = p.Next; p.Next == "" {
		if len(s.stable) > 0 {
			t.Fatalf("the pages of %v do not have %v, which never changed", s.query, slices.Collect(maps.Keys(s.stable)))
		}
		m.scan = nil
	}
}

// advance checks a page: it has what the query wants now, in order, without a gap, behind the page before.
func (m *model) advance(t *rapid.T, p table.Page) {
	s := m.scan
	wanted := m.wants(s.wanted)
	for i, got := range p.Entities {
		m.check(t, got)
		at, found := slices.BinarySearchFunc(wanted, got.Key, table.Key.Compare)
		switch {
		case !found:
			t.Fatalf("the query %v does not want %s", s.query, got.Key)
		case s.last != (table.Key{}) && got.Key.Compare(s.last) <= 0:
			t.Fatalf("%s comes after %s", got.Key, s.last)
		case i > 0 && wanted[at-1] != p.Entities[i-1].Key:
			t.Fatalf("a page leaves out %s", wanted[at-1])
		}
		s.last = got.Key
		delete(s.stable, got.Key)
	}
}
