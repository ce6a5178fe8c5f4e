package index

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/table"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tables are the three tables of an index.
type tables struct{ videos, terms, postings table.Store }

func newTables() tables {
	return tables{table.Memory("videos"), table.Memory("terms"), table.Memory("postings")}
}

// index returns an index in the tables, as seen through a wrapper.
func (ts tables) index(through func(table.Store) table.Store) *Index {
	if through == nil {
		return New(ts.videos, ts.terms, ts.postings)
	}
	return New(through(ts.videos), through(ts.terms), through(ts.postings))
}

func put(tb testing.TB, x *Index, video string, version int64, c Credits) {
	tb.Helper()
	if err := x.Put(tb.Context(), video, version, c); err != nil {
		tb.Fatalf("put %s in version %d: %v", video, version, err)
	}
}

// rows returns a whole table: each key with the number that the entity has as this property.
func rows(ctx context.Context, s table.Store, property string) (map[table.Key]int64, error) {
	all := map[table.Key]int64{}
	for e, err := range table.All(ctx, s, table.Query{}) {
		if err != nil {
			return nil, err
		}
		all[e.Key] = e.Int(property)
	}
	return all, nil
}

// wrong returns how the tables differ from those of an index that nobody has ever disturbed; "" if they do not. The credits are in
// their last version.
func (ts tables) wrong(ctx context.Context, want map[string]Video) string {
	videos, terms, postings := map[table.Key]int64{}, map[table.Key]int64{}, map[table.Key]int64{}
	for name, v := range want {
		videos[table.Key{Partition: name}] = v.Version
		for _, t := range v.Credits.terms() {
			terms[t.entry()] = 0
			postings[t.posting(name)] = v.Version
			postings[t.head()]++ // its count, below
		}
	}
	gotVideos, err1 := rows(ctx, ts.videos, versionProperty)
	gotTerms, err2 := rows(ctx, ts.terms, "")
	gotPostings, err3 := rows(ctx, ts.postings, versionProperty)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err.Error()
	}
	for key := range gotPostings {
		if key.Row == "" {
			head, err := ts.postings.Get(ctx, key)
			if err != nil {
				return err.Error()
			}
			gotPostings[key] = head.Int(countProperty)
		}
	}
	for _, one := range []struct {
		what      string
		got, want map[table.Key]int64
	}{{"videos", gotVideos, videos}, {"terms", gotTerms, terms}, {"postings and counts", gotPostings, postings}} {
		if !maps.Equal(one.got, one.want) {
			return fmt.Sprintf("%s: got %v, want %v", one.what, one.got, one.want)
		}
	}
	for name := range want {
		e, err := ts.videos.Get(ctx, table.Key{Partition: name})
		if err != nil || e.Text(beforeProperty) != "" {
			return fmt.Sprintf("%s: got %v, %v; want nothing of the credits before", name, e, err)
		}
	}
	return ""
}

func (ts tables) check(tb testing.TB, want map[string]Video) {
	tb.Helper()
	if wrong := ts.wrong(context.WithoutCancel(tb.Context()), want); wrong != "" {
		tb.Fatal(wrong)
	}
}

// network is the way to the tables: its calls take a while, so that those of several workers mix, and some fail, before or
// after they take effect. It is safe for concurrent use.
type network struct {
	mu     sync.Mutex
	random *rand.Rand // guarded by mu
	faults float64    // the part of the calls that fail
}

func newNetwork(seed uint64, faults float64) *network {
	return &network{random: rand.New(rand.NewPCG(seed, 1)), faults: faults}
}

// travel takes 1 ms or 2 or so up to 2 s, and reports whether the call is lost.
func (n *network) travel() (lost bool) {
	n.mu.Lock()
	took, lost := time.Millisecond<<n.random.IntN(12), n.random.Float64() < n.faults/2
	n.mu.Unlock()
	time.Sleep(took) // of the bubble
	return lost
}

func (n *network) call(act func() error) error {
	if n.travel() {
		return table.ErrUnavailable
	}
	err := act()
	if n.travel() {
		return table.ErrUnavailable // the answer is lost
	}
	return err
}

func (n *network) to(s table.Store) table.Store { return &remote{s, n} }

// remote is a table behind a network, or something else that has to do with each call.
type remote struct {
	table.Store
	network interface{ call(act func() error) error }
}

func (r *remote) Insert(ctx context.Context, e table.Entity) (etag table.ETag, err error) {
	err = r.network.call(func() error { etag, err = r.Store.Insert(ctx, e); return err })
	return etag, err
}

func (r *remote) Get(ctx context.Context, k table.Key) (e table.Entity, err error) {
	err = r.network.call(func() error { e, err = r.Store.Get(ctx, k); return err })
	return e, err
}

func (r *remote) Update(ctx context.Context, e table.Entity) (etag table.ETag, err error) {
	err = r.network.call(func() error { etag, err = r.Store.Update(ctx, e); return err })
	return etag, err
}

func (r *remote) Delete(ctx context.Context, k table.Key, etag table.ETag) error {
	return r.network.call(func() error { return r.Store.Delete(ctx, k, etag) })
}

func (r *remote) Apply(ctx context.Context, changes []table.Change) (etags []table.ETag, err error) {
	err = r.network.call(func() error { etags, err = r.Store.Apply(ctx, changes); return err })
	return etags, err
}

func (r *remote) Query(ctx context.Context, q table.Query) (p table.Page, err error) {
	err = r.network.call(func() error { p, err = r.Store.Query(ctx, q); return err })
	return p, err
}

// names returns the names of videos.
func names(videos []Video) (all []string) {
	for _, v := range videos {
		all = append(all, v.Name)
	}
	return all
}

// last returns of each video the last version.
func last(all []Video) map[string]Video {
	want := map[string]Video{}
	for _, v := range all {
		if v.Version > want[v.Name].Version {
			want[v.Name] = v
		}
	}
	return want
}

// search returns all that a query finds, by pages of this size.
func search(ctx context.Context, x *Index, query string, size int) ([]Video, error) {
	q, err := ParseQuery(query)
	if err != nil {
		return nil, err
	}
	var all []Video
	for from := ""; ; {
		page, err := x.Search(ctx, q, from, size)
		if err != nil {
			return nil, err
		}
		if len(page.Videos) > size || len(page.Videos) == 0 && page.Next != "" || !slices.IsSorted(names(page.Videos)) {
			return nil, fmt.Errorf("got the page %v with the next at %q", names(page.Videos), page.Next)
		}
		all = append(all, page.Videos...)
		if from = page.Next; from == "" {
			return all, nil
		}
	}
}
