package index

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/table"
)

// interruption makes something happen before or after one of the calls of a worker: what others do while the worker waits for
// its network.
type interruption struct {
	nth   int // the number of the call, from 1; the worker is not interrupted if it makes fewer
	after bool
	kills bool // the worker gets no answer
	act   func()

	calls int
}

func (i *interruption) call(act func() error) error {
	i.calls++
	now := i.calls == i.nth
	if now && !i.after {
		i.act()
	}
	if now && i.kills && !i.after {
		return table.ErrUnavailable
	}
	err := act()
	if now && i.after {
		i.act()
	}
	if now && i.kills {
		return table.ErrUnavailable
	}
	return err
}

func (i *interruption) to(s table.Store) table.Store { return &remote{s, i} }

// V-01: a worker is interrupted before and after each of its calls, and what others do then is all done when it goes on, or gets
// no answer and begins again. So each of its steps comes as late as it can.
func TestInterruptedAtEveryStep(t *testing.T) {
	if testing.Short() {
		t.Skip("a sweep over steps")
	}
	synctest.Test(t, interruptEveryStep)
}

func interruptEveryStep(t *testing.T) {
	// Few terms: one that all have, and of each the only one of a field.
	sea, glass, other := Credits{Title: "Sea", Actors: []string{"Zoe"}}, Credits{Title: "Glass", Actors: []string{"Zoe"}}, Credits{Title: "Ship", Actors: []string{"Zoe"}, Keywords: []string{"night"}}
	before := map[string][]Video{
		"a new video":                {},
		"a replaced video":           {{Name: "a", Version: 1, Credits: other}},
		"a video that is there":      {{Name: "a", Version: 2, Credits: sea}},
		"a neighbour with its terms": {{Name: "b", Version: 1, Credits: sea}, {Name: "a", Version: 1, Credits: other}},
	}
	meanwhile := map[string][]Video{
		"delivered twice":           {{Name: "a", Version: 2, Credits: sea}},
		"a later version":           {{Name: "a", Version: 3, Credits: other}},
		"a later one with the same": {{Name: "a", Version: 3, Credits: sea}},
		"two later versions":        {{Name: "a", Version: 3, Credits: other}, {Name: "a", Version: 4, Credits: sea}},
		"and back":                  {{Name: "a", Version: 3, Credits: glass}, {Name: "a", Version: 4, Credits: other}},
		"an earlier version":        {{Name: "a", Version: 1, Credits: other}},
		"a neighbour comes":         {{Name: "c", Version: 1, Credits: sea}},
		"a neighbour changes":       {{Name: "b", Version: 2, Credits: other}},
		"neighbours come and go":    {{Name: "c", Version: 1, Credits: sea}, {Name: "c", Version: 2, Credits: glass}, {Name: "b", Version: 2, Credits: sea}},
	}
	calls := 0
	for first, earlier := range before {
		for then, others := range meanwhile {
			for _, kills := range []bool{false, true} {
				for _, after := range []bool{false, true} {
					for nth, made := 1, 1; made >= nth; nth++ {
						made = interrupt(t, sea, earlier, others, &interruption{nth: nth, after: after, kills: kills})
						calls++
						if t.Failed() {
							t.Fatalf("%s; meanwhile %s, at call %d, after it: %v, which kills: %v", first, then, nth, after, kills)
						}
					}
				}
			}
		}
	}
	if calls < 1000 {
		t.Errorf("got %d interruptions, want a thousand", calls)
	}
}

// interrupt writes the credits as the second version of a video, with this interruption, and returns how many calls that took.
func interrupt(t *testing.T, c Credits, earlier, others []Video, i *interruption) (calls int) {
	ts := newTables()
	plain := ts.index(nil)
	all := append([]Video{{Name: "a", Version: 2, Credits: c}}, earlier...)
	for _, v := range earlier {
		put(t, plain, v.Name, v.Version, v.Credits)
	}
	i.act = func() {
		all = append(all, others...)
		for _, v := range others {
			put(t, plain, v.Name, v.Version, v.Credits)
		}
	}
	err := ts.index(i.to).Put(t.Context(), "a", 2, c)
	if i.kills && errors.Is(err, table.ErrUnavailable) {
		err = plain.Put(t.Context(), "a", 2, c)
	}
	if err != nil {
		t.Error(err)
	}
	if wrong := ts.wrong(context.WithoutCancel(t.Context()), last(all)); wrong != "" {
		t.Error(wrong)
	}
	return i.calls
}
