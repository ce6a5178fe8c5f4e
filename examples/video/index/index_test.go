package index

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/table"
)

var (
	sea   = Credits{Title: "The Silent Sea", Actors: []string{"Zoe Okafor", "Emil Brandt"}, Directors: []string{"Mara Lind"}, Keywords: []string{"storm", "ship"}}
	glass = Credits{Title: "Harbour of Glass", Actors: []string{"Zoe Okafor"}, Directors: []string{"Emil Brandt"}, Keywords: []string{"storm"}}
)

// V-01: what a transcoder writes to the index is found by titles, actors, directors and keywords.
func TestWhatIsPutIsFound(t *testing.T) {
	ts := newTables()
	x := ts.index(nil)
	put(t, x, "a", 1, sea)
	put(t, x, "b", 1, glass)
	put(t, x, "b", 1, glass) // delivered twice
	ts.check(t, map[string]Video{"a": {Version: 1, Credits: sea}, "b": {Version: 1, Credits: glass}})
	for query, want := range map[string]string{
		"actor:zoe":           "[a b]",
		"ACTOR:Zoe title:SEA": "[a]",
		"emil":                "[a b]", // plays in one and directs the other
		"director:emil":       "[b]",
		"actor:zo* keyword:s": "[]",
		"s* sea":              "[a]",
		"title:of":            "[b]",
		"nobody":              "[]",
		"x*":                  "[]",
	} {
		found, err := search(t.Context(), x, query, 10)
		if got := fmt.Sprint(names(found)); err != nil || got != want {
			t.Errorf("%s: got %s, %v; want %s", query, got, err, want)
		}
	}
	if found, err := search(t.Context(), x, "title:glass", 1); err != nil || len(found) != 1 || fmt.Sprint(found[0].Credits) != fmt.Sprint(glass) {
		t.Errorf("got %v, %v; want all credits", found, err)
	}
}

// A second delivery writes neither videos nor postings.
func TestASecondDeliveryChangesNothing(t *testing.T) {
	ts := newTables()
	put(t, ts.index(nil), "a", 2, sea)
	fixed := func(s table.Store) table.Store { return &unchanging{s} }
	x := New(fixed(ts.videos), ts.terms, fixed(ts.postings))
	for _, v := range []Video{{Version: 2, Credits: sea}, {Version: 1, Credits: glass}} {
		put(t, x, "a", v.Version, v.Credits)
	}
}

// unchanging is a table that nobody may change.
type unchanging struct{ table.Store }

var errChanged = errors.New("a change")

func (*unchanging) Insert(context.Context, table.Entity) (table.ETag, error) { return "", errChanged }
func (*unchanging) Update(context.Context, table.Entity) (table.ETag, error) { return "", errChanged }
func (*unchanging) Delete(context.Context, table.Key, table.ETag) error      { return errChanged }
func (*unchanging) Apply(context.Context, []table.Change) ([]table.ETag, error) {
	return nil, errChanged
}

// A put and a search take the requests that the package comment says.
func TestRequests(t *testing.T) {
	ts, n := newTables(), int64(len(sea.terms()))
	for i, want := range []int64{4 + 5*n, 4 + 4*n} {
		count := new(interruption)
		put(t, ts.index(count.to), fmt.Sprint(i), 1, sea)
		if int64(count.calls) != want {
			t.Errorf("video %d: got %d requests, want %d for %d terms", i, count.calls, want, n)
		}
	}
	count := new(interruption)
	if found, err := search(t.Context(), ts.index(count.to), "title:sea actor:zoe", 10); err != nil || len(found) != 2 || count.calls != 2*2+2 {
		t.Errorf("got %d videos with %d requests, %v; want 2 with 6", len(found), count.calls, err)
	}
}

// The index follows a video that comes again with other credits: terms that it had and has no more go, with their words
// in the directory if no other video has them.
func TestTheIndexFollowsNewCredits(t *testing.T) {
	ts := newTables()
	x := ts.index(nil)
	put(t, x, "a", 1, sea)
	put(t, x, "b", 1, glass)
	put(t, x, "a", 2, glass)
	put(t, x, "a", 1, sea) // late
	ts.check(t, map[string]Video{"a": {Version: 2, Credits: glass}, "b": {Version: 1, Credits: glass}})
	put(t, x, "a", 3, sea)
	ts.check(t, map[string]Video{"a": {Version: 3, Credits: sea}, "b": {Version: 1, Credits: glass}})
}

// V-01: many transcoders at once that write the same terms: each posting is there once, the counts are exact, and none
// has to try too often.
func TestManyWorkersWriteTheSameTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 64
		ts, network := newTables(), newNetwork(1, 0)
		x := ts.index(network.to)
		want := map[string]Video{}
		var all sync.WaitGroup
		for i := range workers {
			name := fmt.Sprintf("video-%02d", i)
			want[name] = Video{Version: 1, Credits: sea}
			for range 2 { // delivered twice at once
				all.Go(func() { put(t, x, name, 1, sea) })
			}
		}
		all.Wait()
		ts.check(t, want)
		terms := len(sea.terms())
		if n := x.Conflicts(); n < workers || n > int64(2*workers*terms*8) {
			t.Errorf("got %d conflicts of %d workers at %d terms, want some, and up to 8 for each", n, 2*workers, terms)
		}
	})
}

// A worker whom others outrun each time gives up after a bounded number of attempts, and its context ends its waits.
func TestAWorkerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := newTables()
		put(t, ts.index(nil), "a", 1, sea)
		x := ts.index(func(s table.Store) table.Store { return &outrunning{Store: s} })
		err := x.Put(t.Context(), "b", 1, glass)
		if !errors.Is(err, ErrContended) || !strings.Contains(err.Error(), "index b: ") || x.Conflicts() != attempts {
			t.Errorf("got %v after %d attempts, want that it gave up after %d", err, x.Conflicts(), attempts)
		}
		gone := errors.New("shut down")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(gone) })
		if err := x.Put(ctx, "b", 1, glass); !errors.Is(err, gone) {
			t.Errorf("got %v, want the cause of the context", err)
		}
		if err := waitForOthers(ctx, attempts); !errors.Is(err, gone) {
			t.Errorf("a wait after the end: got %v, want the cause of the context", err)
		}
	})
}

// outrunning is a table in which others are always faster.
type outrunning struct{ table.Store }

func (o *outrunning) Apply(context.Context, []table.Change) ([]table.ETag, error) {
	return nil, table.ErrPreconditionFailed
}

// redeliver puts a video as a queue makes workers do it: again after each failure, and sometimes once more.
func redeliver(ctx context.Context, x *Index, n *network, v Video) error {
	for range 10_000 {
		n.travel()
		if err := x.Put(ctx, v.Name, v.Version, v.Credits); err == nil {
			return nil
		} else if !errors.Is(err, table.ErrUnavailable) {
			return err
		}
	}
	return errors.New("it never succeeded")
}

// drawCredits draws from few words, so that videos share them.
func drawCredits(r *rapid.T) Credits {
	word := rapid.SampledFrom([]string{"sea", "seal", "Se", "glass", "ÄRA", "👻"})
	some := func(label string) []string { return rapid.SliceOfN(word, 0, 2).Draw(r, label) }
	return Credits{Title: word.Draw(r, "title"), Actors: some("actors"), Directors: some("directors"), Keywords: some("keywords")}
}

func drawVideos(r *rapid.T, most int) (all []Video) {
	versions := map[string]int64{}
	for range rapid.IntRange(1, most).Draw(r, "uploads") {
		name := rapid.SampledFrom([]string{"a", "b", "b 1", "c"}).Draw(r, "video")
		versions[name] += int64(rapid.IntRange(1, 2).Draw(r, "versions on"))
		all = append(all, Video{Name: name, Version: versions[name], Credits: drawCredits(r)})
	}
	return all
}

// noDeadline is a test without its deadline, which must not be asked for in a bubble.
type noDeadline struct{ *testing.T }

func (noDeadline) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// V-01: several workers at once write several versions of videos, each of which may be delivered twice at once; calls fail, or
// their answers are lost, and the work is delivered again. In the end the index is as if nothing had happened. All the while a search
// finds nothing that it must not find.
func TestTheIndexIsRightUnderConcurrencyAndFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(noDeadline{t}, func(r *rapid.T) {
			uploads := drawVideos(r, 5)
			faults := rapid.SampledFrom([]float64{0, 0.01, 0.05, 0.15}).Draw(r, "faults")
			ts, network := newTables(), newNetwork(rapid.Uint64().Draw(r, "seed"), faults)
			x, plain := ts.index(network.to), ts.index(nil)
			var all sync.WaitGroup
			errs := make([]error, 2*len(uploads))
			for i, v := range uploads {
				for j := range rapid.IntRange(1, 2).Draw(r, "deliveries") {
					all.Go(func() { errs[2*i+j] = redeliver(t.Context(), x, network, v) })
				}
			}
			done := make(chan struct{})
			go func() { defer close(done); all.Wait() }()
			ends := false
			for !ends {
				select {
				case <-done:
					ends = true
				case <-time.After(700 * time.Millisecond):
				}
				found, err := search(t.Context(), plain, "title:se*", 2)
				if err != nil {
					r.Fatal(err)
				}
				for _, v := range found {
					if !strings.HasPrefix(strings.ToLower(v.Credits.Title), "se") {
						r.Fatalf("found %v", v)
					}
				}
			}
			if err := errors.Join(errs...); err != nil {
				r.Fatal(err)
			}
			if wrong := ts.wrong(t.Context(), last(uploads)); wrong != "" {
				r.Fatalf("of %v: %s", uploads, wrong)
			}
		})
	})
}

// Nobody can spoil the index by the name of a video, its version or its credits.
func TestWhatPutRefuses(t *testing.T) {
	ts := newTables()
	x := ts.index(nil)
	long := strings.Repeat("v", maxVideo)
	for _, one := range []struct {
		video   string
		version int64
		credits Credits
		want    string
	}{
		{"", 1, sea, "1 to 256 characters"},
		{"a\x7f", 1, sea, "1 to 256 characters"},
		{"a/b", 1, sea, "no control characters and no / \\ # ?"},
		{"a\n", 1, sea, "1 to 256 characters"},
		{"ä", 1, sea, "of ASCII"},
		{long + "v", 1, sea, "1 to 256 characters"},
		{"a", 0, sea, "versions begin at 1"},
		{"a", 1, Credits{}, "a title is blank"},
	} {
		err := x.Put(t.Context(), one.video, one.version, one.credits)
		if err == nil || !strings.HasPrefix(err.Error(), "index \"") || !strings.Contains(err.Error(), one.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.20q: got %v, want %q", one.video, err, one.want)
		}
	}
	ts.check(t, nil)
	put(t, x, long, 1, sea)
	put(t, x, "~", 1, sea)
	if found, err := search(t.Context(), x, "sea", 1); err != nil || len(found) != 2 {
		t.Errorf("a long name, and ~: got %v, %v; want the videos", found, err)
	}
}

// Two sets of credits in one version are a mistake of the caller: the first one stays.
func TestAVersionHasOneSetOfCredits(t *testing.T) {
	ts := newTables()
	x := ts.index(nil)
	put(t, x, "a", 1, sea)
	title, actors, directors, keywords := sea, sea, sea, sea
	title.Title, actors.Actors, directors.Directors, keywords.Keywords = "b", nil, nil, nil
	for _, c := range []Credits{title, actors, directors, keywords} {
		if err := x.Put(t.Context(), "a", 1, c); err == nil || err.Error() != "index a: version 1 has other credits already" {
			t.Errorf("%v: got %v", c, err)
		}
	}
	ts.check(t, map[string]Video{"a": {Version: 1, Credits: sea}})
}

// An entity that is not of an index is an error of its video alone, and is not replaced.
func TestADamagedVideo(t *testing.T) {
	for _, damage := range []map[string]any{
		{},
		{creditsProperty: "?", versionProperty: int64(1)},
		{creditsProperty: `{"title":"a"}`, beforeProperty: "{}", versionProperty: int64(1)},
	} {
		ts := newTables()
		x := ts.index(nil)
		put(t, x, "b", 1, sea)
		if _, err := ts.videos.Insert(t.Context(), table.Entity{Key: table.Key{Partition: "a"}, Properties: damage}); err != nil {
			t.Fatal(err)
		}
		if err := x.Put(t.Context(), "a", 1, glass); !errors.Is(err, ErrCredits) || !strings.Contains(err.Error(), "read the video a: ") {
			t.Errorf("%v: got %v, want that it cannot be read", damage, err)
		}
		if v, err := x.read(t.Context(), "a"); !errors.Is(err, ErrCredits) {
			t.Errorf("%v: got %v, %v; want that it cannot be read", damage, v, err)
		}
		if found, err := search(t.Context(), x, "sea", 1); err != nil || len(found) != 1 {
			t.Errorf("%v: found %v, %v; want the other video", damage, found, err)
		}
	}
}

func TestAVideoByName(t *testing.T) {
	x := newTables().index(nil)
	put(t, x, "a", 3, sea)
	if v, err := x.read(t.Context(), "a"); err != nil || v.Version != 3 || fmt.Sprint(v.Credits) != fmt.Sprint(sea) {
		t.Errorf("got %v, %v", v, err)
	}
	if v, err := x.read(t.Context(), "b"); err != nil || v.Version != 0 || v.Name != "b" {
		t.Errorf("a video that is not there: got %v, %v; want version 0", v, err)
	}
}
