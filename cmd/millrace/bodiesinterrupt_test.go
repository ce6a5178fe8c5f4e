package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/codec/claimcheck"
)

// interruptedStore calls a function after its nth removal, as a signal ends the context.
type interruptedStore struct {
	blob.Store
	left      int
	interrupt func()
}

func (s *interruptedStore) Delete(ctx context.Context, ref blob.Ref) error {
	err := s.Store.Delete(ctx, ref)
	if s.left--; s.left == 0 {
		s.interrupt()
	}
	return err
}

// laterStore is a store whose clock is ahead of this machine's, and which may not say its time.
type laterStore struct {
	blob.Store
	ahead    time.Duration
	timeless bool
}

func (s *laterStore) List(ctx context.Context, container, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		for info, err := range s.Store.List(ctx, container, prefix) {
			info.Modified, info.Now = info.Modified.Add(s.ahead), info.Now.Add(s.ahead)
			if s.timeless {
				info.Now = time.Time{}
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// TestTheAgesOfBodiesAreByTheStoresClock: a dry run counts what would be removed, and the list
// shows the same ages. A store without a clock is listed, and cleaned up by an error alone.
func TestTheAgesOfBodiesAreByTheStoresClock(t *testing.T) {
	t.Parallel()
	const container = "order-bodies"
	for _, ahead := range []time.Duration{-time.Hour, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			store := &laterStore{Store: blob.Memory(), ahead: ahead}
			keepBody(t, store, container, "body", 10, false)
			keepBody(t, store, container, "done", 10, true)
			time.Sleep(24*time.Hour + 30*time.Minute)
			claims, err := claimcheck.New(store, container, nil)
			if err != nil {
				t.Fatal(err)
			}
			var out, errs strings.Builder
			tk := &task{console: &console{in: strings.NewReader(""), out: &out, err: &errs}}
			for older, want := range map[time.Duration]string{24 * time.Hour: "1", 25 * time.Hour: "0"} {
				out.Reset()
				err := errors.Join(
					tk.purgeBodies(t.Context(), container, claims, &bodyFlags{}, older, true, false),
					tk.sweepBodies(t.Context(), container, claims, &bodyFlags{}, older, true),
					tk.listBodies(t.Context(), claims, older, false, false))
				if err != nil || strings.Count(out.String(), want+" ") < 2 || strings.Contains(out.String(), " 1d00h ") != (want == "1") {
					t.Errorf("ahead by %v, older than %v: got %q, %v; want %s of each", ahead, older, out.String(), err, want)
				}
			}
			store.timeless = true
			for _, err := range []error{
				tk.purgeBodies(t.Context(), container, claims, &bodyFlags{}, time.Hour, true, false),
				tk.sweepBodies(t.Context(), container, claims, &bodyFlags{}, time.Hour, true),
			} {
				if err == nil || !strings.Contains(err.Error(), "tell the age of blob://"+container) {
					t.Errorf("without a clock: got error %v, want one that says so", err)
				}
			}
			out.Reset()
			if err := tk.listBodies(t.Context(), claims, 0, false, false); err != nil || !strings.Contains(out.String(), "10 bytes") {
				t.Errorf("list without a clock: got %q, %v; want the body", out.String(), err)
			}
		})
	}
}

// TestAnInterruptedCleanUpOfBodiesSaysHowFarItGot: after the signal nothing more is removed, what was is counted,
// and running it again does the rest.
func TestAnInterruptedCleanUpOfBodiesSaysHowFarItGot(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"sweep", "purge"} {
		for _, asJSON := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) { interruptCleanUp(t, verb, asJSON) })
		}
	}
}

func interruptCleanUp(t *testing.T, verb string, asJSON bool) {
	const all, removed, container = 20, 3, "order-bodies"
	ctx, interrupt := context.WithCancel(t.Context())
	store := &interruptedStore{blob.Memory(), removed, interrupt}
	for i := range all {
		keepBody(t, store, container, fmt.Sprintf("b%02d", i), 10, verb == "sweep")
	}
	time.Sleep(48 * time.Hour)
	claims, err := claimcheck.New(store, container, &claimcheck.Options{Retention: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	tk := &task{console: &console{in: strings.NewReader(""), out: &out, err: &errs}}
	flags := &bodyFlags{asJSON: asJSON}
	cleanUp := func(ctx context.Context) error {
		if verb == "sweep" {
			return tk.sweepBodies(ctx, container, claims, flags, 24*time.Hour, false)
		}
		return tk.purgeBodies(ctx, container, claims, flags, 24*time.Hour, false, true)
	}
	err = cleanUp(ctx)
	what := map[string]string{"sweep": "3 tombstones", "purge": "3 bodies of 30 bytes"}[verb]
	if want := "interrupted; " + what + " of order-bodies were removed; run it again for the rest"; !errors.As(err, new(interruption)) || err.Error() != want {
		t.Errorf("%s: got error %v, want the interruption %q", verb, err, want)
	}
	var r bodiesRemoved
	switch {
	case !asJSON && out.Len() > 0:
		t.Errorf("%s: got output %q, want none", verb, out.String())
	case asJSON:
		if err := json.Unmarshal([]byte(out.String()), &r); err != nil || r.Blobs != removed || r.Error == "" {
			t.Errorf("%s -json: got %q, %v; want %d blobs and an error", verb, out.String(), err, removed)
		}
	}
	out.Reset()
	if err := cleanUp(t.Context()); err != nil {
		t.Errorf("%s again: got error %v", verb, err)
	}
	if want := fmt.Sprint(all - removed); !strings.Contains(out.String(), want) {
		t.Errorf("%s again: got %q, want %s removed", verb, out.String(), want)
	}
}
