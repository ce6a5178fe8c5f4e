package channels

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/table"
)

// Every operation comes to its end if any one request is lost, or its answer is, and leaves what it leaves without
// that.
func TestEveryOperationSurvivesALostRequestAndALostAnswer(t *testing.T) {
	type result struct {
		channels, posts int
	}
	operations := map[string]struct {
		run  func(t *testing.T, s *Site, c Channel) error
		want result
	}{
		"create":  {func(t *testing.T, s *Site, _ Channel) error { return second(s.Create(t.Context(), "b", "ann")) }, result{2, 3}},
		"write":   {func(t *testing.T, s *Site, c Channel) error { return second(s.Write(t.Context(), c, "u", "t", "x")) }, result{1, 4}},
		"channel": {func(t *testing.T, s *Site, c Channel) error { return second(s.Channel(t.Context(), c.Name)) }, result{1, 3}},
		"page": {func(t *testing.T, s *Site, c Channel) error {
			_, _, _, err := s.Page(t.Context(), c.Name, "", 2)
			return err
		}, result{1, 3}},
		"list": {func(t *testing.T, s *Site, _ Channel) error { _, _, err := s.List(t.Context(), "", 2); return err }, result{1, 3}},
		"mark": {func(t *testing.T, s *Site, c Channel) error {
			return s.BeginDeletion(t.Context(), c.Name, c.Incarnation)
		}, result{1, 3}},
		"sweep":    {func(t *testing.T, s *Site, _ Channel) error { return second(s.Sweep(t.Context())) }, result{1, 3}},
		"deletion": {func(t *testing.T, s *Site, c Channel) error { s.end(t, c); return nil }, result{0, 0}},
		"take over": {func(t *testing.T, s *Site, c Channel) error {
			s.mark(t, c)
			return second(s.Create(t.Context(), c.Name, "bob"))
		}, result{1, 3}},
	}
	for name, o := range operations {
		for _, answer := range []bool{false, true} {
			for nth, more := 1, true; more; nth++ {
				synctest.Test(t, func(t *testing.T) {
					s := newSite()
					c := must[Channel](t)(s.Create(t.Context(), "a", "ann"))
					s.fill(t, c, 3)
					more = false
					fail := func(n int, _ string) error {
						if n != nth {
							return nil
						}
						more = true
						return errAway
					}
					faulty := s.hook(fail, nil)
					if answer {
						faulty = s.hook(nil, fail)
					}
					if err := o.run(t, faulty, c); err != nil {
						t.Errorf("%s, request %d, answer lost: %v: got %v, want no error", name, nth, answer, err)
					}
					if got := (result{count(t, s.Channels), count(t, s.Posts)}); got != o.want {
						t.Errorf("%s, request %d, answer lost: %v: got %+v, want %+v", name, nth, answer, got, o.want)
					}
				})
			}
		}
	}
}

func count(t *testing.T, s table.Store) (n int) {
	t.Helper()
	for _, err := range table.All(t.Context(), s, table.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// A table that stays away is an error that says so, after a bounded number of requests.
func TestATableThatStaysAwayIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		requests := 0
		away := s.hook(func(n int, _ string) error { requests = n; return errAway }, nil)
		for name, err := range map[string]error{
			"create":  second(away.Create(t.Context(), "a", "ann")),
			"channel": second(away.Channel(t.Context(), "a")),
			"delete":  func() error { _, _, err := away.DeletePosts(t.Context(), "a", "i", "", 10); return err }(),
		} {
			if !table.Transient(err) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrNoChannel) {
				t.Errorf("%s: got %v, want ErrUnavailable", name, err)
			}
		}
		if requests != 3*tries {
			t.Errorf("requests: got %d, want %d", requests, 3*tries)
		}
	})
}
