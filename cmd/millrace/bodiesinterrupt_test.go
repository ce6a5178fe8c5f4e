package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/claimcheck"
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
