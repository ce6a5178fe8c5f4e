package channels

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/table"
)

// T-15: a post that another worker has deleted meanwhile stops nothing: the others of its group are deleted.
func TestAGroupOfWhichSomeAreGoneIsDeleted(t *testing.T) {
	s := newSite()
	c := must[Channel](t)(s.Create(t.Context(), "a", "ann"))
	all := s.fill(t, c, 250)
	s.mark(t, c)
	applied := 0
	other := s.hook(func(_ int, op string) error {
		if op != "apply" {
			return nil
		}
		if applied++; applied == 2 {
			for _, i := range []int{100, 150, 199} {
				if err := s.Posts.Delete(t.Context(), postKey(c, all[i]), table.Any); err != nil {
					t.Error(err)
				}
			}
		}
		return nil
	}, nil)
	found, next, err := other.DeletePosts(t.Context(), "a", c.Incarnation, "", 230)
	if found != 230 || next == "" || err != nil {
		t.Errorf("got %d, %q, %v; want 230 and a token", found, next, err)
	}
	if n := s.posts(t, c); n != 20 {
		t.Errorf("posts: got %d, want 20", n)
	}
	if found, next, err = s.DeletePosts(t.Context(), "a", c.Incarnation, next, 230); found != 20 || next != "" || err != nil {
		t.Errorf("second page: got %d, %q, %v; want 20 and no token", found, next, err)
	}
	if _, _, err := s.DeletePosts(t.Context(), "a", c.Incarnation, "no token", 230); !errors.Is(err, ErrInvalid) {
		t.Errorf("no token: got %v, want ErrInvalid", err)
	}
}

func TestOnlyAMarkedChannelIsDeleted(t *testing.T) {
	s := newSite()
	c := must[Channel](t)(s.Create(t.Context(), "a", "ann"))
	if err := s.EndDeletion(t.Context(), "a", c.Incarnation); err == nil {
		t.Error("not marked: got no error, want one")
	}
	if err := s.EndDeletion(t.Context(), "a", "another"); err != nil {
		t.Errorf("another incarnation: got %v, want no error", err)
	}
	if got, err := s.Channel(t.Context(), "a"); got != c || err != nil {
		t.Errorf("got %v, %v; want %v", got, err, c)
	}
	s.end(t, c)
	if n := count(t, s.Channels); n != 0 {
		t.Errorf("channels: got %d, want none", n)
	}
	if err := errors.Join(s.BeginDeletion(t.Context(), "a", c.Incarnation), s.EndDeletion(t.Context(), "a", c.Incarnation)); err != nil {
		t.Errorf("again: got %v, want no error", err)
	}
	if n := count(t, s.Channels); n != 0 {
		t.Errorf("channels after it was deleted again: got %d, want none", n)
	}
}

// T-15: whenever a channel is taken over while the deletion of the one before goes on, it stays whole.
func TestADeletionDoesNotTouchWhatTakesItsPlace(t *testing.T) {
	for nth, more := 1, true; more; nth++ {
		more = false
		s := newSite()
		old := must[Channel](t)(s.Create(t.Context(), "a", "ann"))
		s.fill(t, old, 150)
		s.mark(t, old)
		var c Channel
		s.hook(at(nth, func() {
			c = s.anew(t, old)
			more = true
		}), nil).end(t, old)
		if !more {
			continue
		}
		if got, posts, _, err := s.Page(t.Context(), "a", "", 10); err != nil || got != c || len(posts) != 1 {
			t.Errorf("taken over before request %d: got %v with %d posts, %v; want %v with one", nth, got, len(posts), err, c)
		}
		if n := s.posts(t, old); n != 0 {
			t.Errorf("taken over before request %d: got %d old posts, want none", nth, n)
		}
	}
}

// Two that create a channel in the place of a marked one: one of them does.
func TestOneTakesAMarkedChannelOver(t *testing.T) {
	for nth := 1; nth <= 2; nth++ {
		s := newSite()
		old := must[Channel](t)(s.Create(t.Context(), "a", "ann"))
		s.mark(t, old)
		var first Channel
		slow := s.hook(at(nth, func() { first = s.anew(t, old) }), nil)
		if _, err := slow.Create(t.Context(), "a", "bob"); !errors.Is(err, ErrChannelExists) {
			t.Errorf("before request %d: got %v, want ErrChannelExists", nth, err)
		}
		if got, err := s.Channel(t.Context(), "a"); got != first || err != nil {
			t.Errorf("before request %d: got %v, %v; want %v", nth, got, err, first)
		}
	}
}

// A post of a dead incarnation is swept when it is so old that no writer is at work on it; those of channels that are
// there stay, marked or not.
func TestASweepDeletesWhatBelongsToNoChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		var want int
		for _, name := range []string{"a", "b", "c"} {
			old := must[Channel](t)(s.Create(t.Context(), name, "ann"))
			s.end(t, old)
			for i := range 5 {
				s.late(t, old, i)
			}
			if name == "b" {
				want += len(s.fill(t, s.anew(t, old), 3)) + 1
			}
		}
		marked := must[Channel](t)(s.Create(t.Context(), "d", "ann"))
		want += len(s.fill(t, marked, 2))
		s.mark(t, marked)
		if n, err := s.Sweep(t.Context()); n != 0 || err != nil {
			t.Errorf("at once: got %d, %v; want none", n, err)
		}
		time.Sleep(WriteTimeout + time.Second)
		young := must[Channel](t)(s.Create(t.Context(), "e", "ann"))
		s.end(t, young)
		s.late(t, young, 1)
		if n, err := s.Sweep(t.Context()); n != 15 || err != nil {
			t.Errorf("after the time: got %d, %v; want 15", n, err)
		}
		if n := count(t, s.Posts); n != want+1 {
			t.Errorf("posts: got %d, want %d", n, want+1)
		}
	})
}

// A channel that is made anew, deleted or taken over while a sweep reads keeps its posts.
func TestASweepDoesNotTouchWhatComesMeanwhile(t *testing.T) {
	for nth, more := 1, true; more; nth++ {
		synctest.Test(t, func(t *testing.T) {
			more = false
			s := newSite()
			old := must[Channel](t)(s.Create(t.Context(), "a", "ann"))
			s.end(t, old)
			s.late(t, old, 1)
			time.Sleep(WriteTimeout + time.Second)
			slow := s.hook(at(nth, func() {
				s.anew(t, old)
				more = true
				time.Sleep(WriteTimeout + time.Second) // the sweep is slow
			}), nil)
			if n, err := slow.Sweep(t.Context()); n != 1 || err != nil {
				t.Errorf("anew before request %d: got %d, %v; want 1", nth, n, err)
			}
			if _, posts, _, err := s.Page(t.Context(), "a", "", 10); more && (len(posts) != 1 || err != nil) {
				t.Errorf("anew before request %d: got %d posts, %v; want one", nth, len(posts), err)
			}
		})
	}
}
