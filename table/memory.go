package table

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/serviceerror"
)

// Memory returns an empty store in memory, for tests and for programs that need no durability. The name is the
// table's, in errors.
func Memory(name string) Store { return &memory{name: name, partitions: map[string][]*Entity{}} }

type memory struct {
	name string

	mu         sync.RWMutex
	partitions map[string][]*Entity // by name, each ordered by row, none empty; the entities are never changed; guarded by mu
	names      []string             // of the partitions, in order; guarded by mu
	version    int64                // of the last change; guarded by mu
}

func (m *memory) Insert(ctx context.Context, e Entity) (ETag, error) {
	return m.change(ctx, "insert", Inserting(e))
}

func (m *memory) Update(ctx context.Context, e Entity) (ETag, error) {
	return m.change(ctx, "update", Updating(e))
}

func (m *memory) Delete(ctx context.Context, k Key, etag ETag) error {
	_, err := m.change(ctx, "delete", Deleting(k, etag))
	return err
}

func (m *memory) change(ctx context.Context, op string, c Change) (ETag, error) {
	etags, err := m.apply(ctx, c.Check(), []Change{c})
	if err != nil {
		return "", Explain(op, m.name, c.entity.Key, err)
	}
	return etags[0], nil
}

func (m *memory) Apply(ctx context.Context, changes []Change) ([]ETag, error) {
	etags, err := m.apply(ctx, CheckGroup(changes), changes)
	return etags, Explain("apply", m.name, Key{}, err)
}

func (m *memory) apply(ctx context.Context, bad error, changes []Change) ([]ETag, error) {
	if err := ready(ctx, bad); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range changes {
		if err := c.Against(m.versionOf(c.entity.Key)); err != nil {
			return nil, err
		}
	}
	etags := make([]ETag, len(changes))
	for i, c := range changes {
		etags[i] = m.write(c)
	}
	return etags, nil
}

// find returns where a row is in its partition, or would be. m.mu is held.
func (m *memory) find(k Key) (rows []*Entity, at int, found bool) {
	rows = m.partitions[k.Partition]
	at, found = slices.BinarySearchFunc(rows, k.Row, func(e *Entity, row string) int { return strings.Compare(e.Row, row) })
	return rows, at, found
}

// versionOf returns the version of an entity, or "" if it does not exist. m.mu is held.
func (m *memory) versionOf(k Key) ETag {
	if rows, at, found := m.find(k); found {
		return rows[at].ETag
	}
	return ""
}

// write makes a change that is known to be possible. m.mu is held.
func (m *memory) write(c Change) ETag {
	rows, at, found := m.find(c.entity.Key)
	partition := c.entity.Partition
	if c.Deletes() {
		if rows = without(rows, at); len(rows) > 0 {
			m.partitions[partition] = rows
			return ""
		}
		delete(m.partitions, partition)
		i, _ := slices.BinarySearch(m.names, partition)
		m.names = without(m.names, i)
		return ""
	}
	e := c.entity.Clone()
	m.version++
	e.ETag, e.Modified = ETag(fmt.Sprintf(`W/"%d"`, m.version)), time.Now().UTC().Truncate(timePrecision)
	if found {
		rows[at] = &e
		return e.ETag
	}
	if len(rows) == 0 {
		i, _ := slices.BinarySearch(m.names, partition)
		m.names = slices.Insert(m.names, i, partition)
	}
	m.partitions[partition] = slices.Insert(rows, at, &e)
	return e.ETag
}

// without returns a slice without an element. It moves nothing if that is the first one: programs that delete page by
// page delete from the beginning.
func without[T any](s []T, at int) []T {
	if at > 0 {
		return slices.Delete(s, at, at+1)
	}
	clear(s[:1])
	return s[1:]
}

func (m *memory) Get(ctx context.Context, k Key) (Entity, error) {
	if err := ready(ctx, k.Check()); err != nil {
		return Entity{}, Explain("get", m.name, k, err)
	}
	e, found := m.entity(k)
	if !found {
		return Entity{}, Explain("get", m.name, k, &Error{Kind: ErrMissing})
	}
	return e.Clone(), nil
}

// entity returns an entity as it is stored, which the caller must not change.
func (m *memory) entity(k Key) (e Entity, found bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	rows, at, found := m.find(k)
	if !found {
		return Entity{}, false
	}
	return *rows[at], true
}

func (m *memory) Query(ctx context.Context, q Query) (Page, error) {
	start, tokenErr := q.Start()
	if err := ready(ctx, cmp.Or(q.Check(), tokenErr)); err != nil {
		return Page{}, Explain("query", m.name, Key{Partition: q.Partition}, err)
	}
	p := m.page(q, start)
	for i, e := range p.Entities {
		p.Entities[i] = e.Clone()
	}
	return p, nil
}

// page returns a page with the entities as they are stored, which the caller must not change.
func (m *memory) page(q Query, start Key) Page {
	m.mu.RLock()
	defer m.mu.RUnlock()
	p, _ := q.Collect(func(yield func(Entity, error) bool) {
		first, _ := slices.BinarySearch(m.names, start.Partition)
		for _, name := range m.names[first:] {
			rows := m.partitions[name]
			if name == start.Partition {
				_, at, _ := m.find(start)
				rows = rows[at:]
			}
			for _, e := range rows {
				if !yield(*e, nil) {
					return
				}
			}
		}
	}) // the iterator yields no error
	return p
}

// ready returns the error for which a call must not begin: that of its arguments, or that of an
// ended context.
func ready(ctx context.Context, bad error) error {
	return cmp.Or(bad, serviceerror.Ended(ctx))
}
