package index

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/internal/killtest"
	"github.com/millrace/millrace/table"
)

// V-01: a worker is killed before and after each of its changes, while the video is new and while it gets other credits. Then
// its work is delivered again: alone, twice at once, or after a later version has come. The index is right in the end.
func TestKilledAtEveryStep(t *testing.T) {
	sea, glass, other := Credits{Title: "Silent Sea", Actors: []string{"Zoe"}}, Credits{Title: "Glass", Actors: []string{"Zoe"}}, Credits{Title: "Glass Sea", Keywords: []string{"night"}}
	for what, again := range map[string]func(*testing.T, *Index, Video) []Video{
		"delivered again": func(t *testing.T, x *Index, v Video) []Video {
			put(t, x, v.Name, v.Version, v.Credits)
			return nil
		},
		"twice at once": func(t *testing.T, x *Index, v Video) []Video {
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() { put(t, x, v.Name, v.Version, v.Credits) })
			}
			both.Wait()
			return nil
		},
		"after a later version": func(t *testing.T, x *Index, v Video) []Video {
			later := Video{Name: v.Name, Version: v.Version + 1, Credits: glass}
			put(t, x, later.Name, later.Version, later.Credits)
			put(t, x, v.Name, v.Version, v.Credits)
			return []Video{later}
		},
		"with a later version": func(t *testing.T, x *Index, v Video) []Video {
			later := Video{Name: v.Name, Version: v.Version + 1, Credits: other}
			var both sync.WaitGroup
			both.Go(func() { put(t, x, later.Name, later.Version, later.Credits) })
			both.Go(func() { put(t, x, v.Name, v.Version, v.Credits) })
			both.Wait()
			return []Video{later}
		},
	} {
		t.Run(what, func(t *testing.T) {
			for _, before := range []Credits{{}, other} { // a new video, and one with other credits
				synctest.Test(t, func(t *testing.T) { killAtEveryStep(t, before, sea, again) })
			}
		})
	}
}

func killAtEveryStep(t *testing.T, before, c Credits, again func(*testing.T, *Index, Video) []Video) {
	kinds := []string{"insert", "update", "apply"}
	if before.Title != "" {
		kinds = append(kinds, "delete")
	}
	kills, neighbour := uint64(0), Video{Name: "b", Version: 1, Credits: glass}
	never := killtest.Every(kinds, func(k *killtest.Killer) bool {
		kills++
		ts, all := newTables(), []Video{neighbour}
		x := ts.index(newNetwork(kills, 0).to)
		put(t, x, neighbour.Name, neighbour.Version, neighbour.Credits)
		if before.Title != "" {
			all = append(all, Video{Name: "a", Version: 1, Credits: before})
			put(t, x, "a", 1, before)
		}
		v := Video{Name: "a", Version: 2, Credits: c}
		all = append(all, v)
		doomed := ts.index(func(s table.Store) table.Store { return &killtest.Table{Store: s, Killer: k} })
		if err := doomed.Put(t.Context(), v.Name, v.Version, v.Credits); err != nil && !errors.Is(err, killtest.ErrKilled) {
			t.Fatal(err)
		}
		all = append(all, again(t, x, v)...)
		if wrong := ts.wrong(t.Context(), last(all)); wrong != "" {
			t.Fatalf("killed at the %s %d, after it: %v: %s", k.Kind, k.Nth, k.After, wrong)
		}
		return k.Dead()
	})
	if len(never) > 0 || kills < 12 {
		t.Errorf("got %d kills, and none at %v", kills, fmt.Sprint(never))
	}
}
