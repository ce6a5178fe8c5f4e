package claimcheck_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/codec/claimcheck"
	"github.com/millrace/millrace/internal/blobcheck"
	"github.com/millrace/millrace/internal/claimtext"
	"github.com/millrace/millrace/internal/envelope"
)

func TestABodyIsOpenedAsItWasPut(t *testing.T) {
	c, err := claimcheck.New(blob.Memory(), strings.Repeat("c", blobcheck.MaxContainer), nil)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		claim, err := c.Put(context.Background(), body)
		if err != nil {
			t.Fatal(err)
		}
		if err := (envelope.Head{Claim: claim}).Check(); err != nil {
			t.Fatal(err)
		}
		got, err := c.Open(context.Background(), claim)
		if err != nil || !bytes.Equal(got, body) {
			t.Fatalf("got %x, %v; want %x", got, err, body)
		}
	})
}

func TestWhatOpenRefuses(t *testing.T) {
	ctx := t.Context()
	blobs := blob.Memory()
	c, err := claimcheck.New(blobs, container, &claimcheck.Options{MaxBody: 1000})
	if err != nil {
		t.Fatal(err)
	}
	put := func(body string) string {
		claim, err := c.Put(ctx, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		return claim
	}
	replace := func(claim, content string) string {
		if err := blobs.Put(ctx, ref(t, claim), strings.NewReader(content), nil); err != nil {
			t.Fatal(err)
		}
		return claim
	}
	gone := put("gone")
	if err := blobs.Delete(ctx, ref(t, gone)); err != nil {
		t.Fatal(err)
	}
	settled := put("settled")
	for range 2 { // it may be repeated
		if err := c.Settled(ctx, settled); err != nil {
			t.Fatal(err)
		}
	}
	good := put("good")
	for name, one := range map[string]struct {
		claim string
		want  error
	}{
		"gone":                {gone, envelope.ErrClaimGone},
		"settled":             {settled, envelope.ErrClaimSettled},
		"another content":     {replace(put("abc"), "abd"), envelope.ErrClaimInvalid},
		"a shorter content":   {replace(put("abc"), "ab"), envelope.ErrClaimInvalid},
		"a longer content":    {replace(put("abc"), "abcd"), envelope.ErrClaimInvalid},
		"a larger size":       {strings.Replace(good, "size=4", "size=1001", 1), envelope.ErrClaimInvalid},
		"no size":             {strings.Replace(good, "size=4&", "", 1), envelope.ErrClaimInvalid},
		"a negative size":     {strings.Replace(good, "size=4", "size=-4", 1), envelope.ErrClaimInvalid},
		"half a checksum":     {good[:len(good)-2], envelope.ErrClaimInvalid},
		"another container":   {strings.Replace(good, container, "secrets", 1), envelope.ErrClaimInvalid},
		"another folder":      {strings.Replace(good, "/bodies/", "/others/", 1), envelope.ErrClaimInvalid},
		"no reference":        {"somewhere", envelope.ErrClaimInvalid},
		"nothing":             {"", envelope.ErrClaimInvalid},
		"a broken query":      {good + "&%zz", envelope.ErrClaimInvalid},
		"an unknown property": {good + "&key=7", codec.ErrNewer},
		"both":                {strings.Replace(good, container, "secrets", 1) + "&key=7", envelope.ErrClaimInvalid},
	} {
		body, err := c.Open(ctx, one.claim)
		if !errors.Is(err, one.want) || body != nil {
			t.Errorf("%s: got %q and error %v, want %v", name, body, err, one.want)
		}
	}
	if got, err := c.Open(ctx, good); err != nil || string(got) != "good" {
		t.Errorf("got %q, %v; want good", got, err)
	}
	if _, err := c.Put(ctx, make([]byte, 1001)); err == nil {
		t.Error("a body over MaxBody: got no error, want one")
	}
}

// What a claim says is shown to people.
func TestAClaimIsParsedAsItWasPut(t *testing.T) {
	c, err := claimcheck.New(blob.Memory(), container, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.Put(t.Context(), []byte("abc"))
	if err != nil {
		t.Fatal(err)
	}
	claim, err := claimtext.Parse(text)
	if err != nil || claim.String() != text || claim.Size != 3 || claim.SHA256 != sha256.Sum256([]byte("abc")) || claim.Ref.Container != container {
		t.Errorf("%q: got %v, %v", text, claim, err)
	}
	if claim, err := claimtext.Parse(text + "&key=7"); !errors.Is(err, codec.ErrNewer) || claim.Ref.Container != container || claim.Size != 0 {
		t.Errorf("with a newer parameter: got %+v, %v; want ErrNewer and the reference", claim, err)
	}
	if claim, err := claimtext.Parse("somewhere"); !errors.Is(err, envelope.ErrClaimInvalid) || claim != (claimtext.Claim{}) {
		t.Errorf("no reference: got %+v, %v; want ErrClaimInvalid", claim, err)
	}
}

// docs/protocol.md shows the claim of abc, for programs in other languages.
func TestTheProtocolShowsAClaim(t *testing.T) {
	page, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	blobs := blob.Memory()
	c, err := claimcheck.New(blobs, "container", nil)
	if err != nil {
		t.Fatal(err)
	}
	put, err := c.Put(t.Context(), []byte("abc"))
	if err != nil {
		t.Fatal(err)
	}
	_, claim, found := strings.Cut(string(page), "\nblob://")
	claim, _, _ = strings.Cut("blob://"+claim, "\n")
	shown, err := claimtext.Parse(claim)
	if !found || err != nil {
		t.Fatalf("%q: %v", claim, err)
	}
	if got, want := strings.ReplaceAll(claim, shown.Ref.Name, "bodies/ID"), strings.ReplaceAll(put, ref(t, put).Name, "bodies/ID"); got != want {
		t.Errorf("the page shows %q, want %q", got, want)
	}
	if err := blobs.Put(t.Context(), shown.Ref, strings.NewReader("abc"), nil); err != nil {
		t.Fatal(err)
	}
	if body, err := c.Open(t.Context(), claim); err != nil || string(body) != "abc" {
		t.Errorf("got %q, %v; want abc", body, err)
	}
}

// ref returns the reference in a claim.
func ref(t *testing.T, claim string) blob.Ref {
	t.Helper()
	c, err := claimtext.Parse(claim)
	if err != nil {
		t.Fatal(err)
	}
	return c.Ref
}

// Whoever can send messages must not be able to overwrite what only the worker may.
func TestSettledTouchesOnlyBodies(t *testing.T) {
	ctx := t.Context()
	blobs := blob.Memory()
	c, err := claimcheck.New(blobs, container, nil)
	if err != nil {
		t.Fatal(err)
	}
	claim, err := c.Put(ctx, []byte("abc"))
	if err != nil {
		t.Fatal(err)
	}
	for _, forged := range []string{
		strings.Replace(claim, container, "secrets", 1), strings.Replace(claim, "/bodies/", "/others/", 1), "", "blob://x",
	} {
		if err := c.Settled(ctx, forged); !errors.Is(err, envelope.ErrClaimInvalid) {
			t.Errorf("%q: got error %v, want ErrClaimInvalid", forged, err)
		}
	}
	for info, err := range blobs.List(ctx, "secrets", "") {
		t.Errorf("got blob %v (%v) in another container", info.Ref, err)
	}
}

// A body that is replaced by a tombstone while it is read: Azure says that it was changed.
func TestABodySettledWhileItIsReadIsADuplicate(t *testing.T) {
	bubble(t, func(b *bundle) {
		claim, err := b.claims.Put(b.Context(), []byte("abc"))
		if err != nil {
			b.Fatal(err)
		}
		b.store.before = func(op string) error {
			if op == "open" && b.store.count("open") == 1 {
				if err := b.claims.Settled(b.Context(), claim); err != nil {
					b.Error(err)
				}
				return blob.ErrChanged
			}
			return nil
		}
		if _, err := b.claims.Open(b.Context(), claim); !errors.Is(err, envelope.ErrClaimSettled) {
			b.Errorf("got error %v, want ErrClaimSettled", err)
		}
	})
}

func TestACallEndsAtItsTimeout(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.store.openSlow = time.Hour
		claim, err := b.claims.Put(b.Context(), []byte("abc"))
		if err != nil {
			b.Fatal(err)
		}
		begin := time.Now()
		if _, err := b.claims.Open(b.Context(), claim); !errors.Is(err, context.DeadlineExceeded) {
			b.Errorf("got error %v, want DeadlineExceeded", err)
		}
		if took := time.Since(begin); took != 5*time.Minute {
			b.Errorf("got %v, want 5m", took)
		}
	})
}

func TestTombstonesAreSweptAndBodiesPurgedByAge(t *testing.T) {
	bubble(t, func(b *bundle) {
		put := func() string {
			claim, err := b.claims.Put(b.Context(), []byte("four"))
			if err != nil {
				b.Fatal(err)
			}
			return claim
		}
		old, settled := put(), put()
		if err := b.claims.Settled(b.Context(), settled); err != nil {
			b.Fatal(err)
		}
		sweep := func(want claimcheck.Removed) {
			b.Helper()
			if got, err := b.claims.Sweep(b.Context()); got != want || err != nil {
				b.Errorf("Sweep: got %+v, %v; want %+v", got, err, want)
			}
		}
		purge := func(age time.Duration, want claimcheck.Removed) {
			b.Helper()
			if got, err := b.claims.Purge(b.Context(), age); got != want || err != nil {
				b.Errorf("Purge %v: got %+v, %v; want %+v", age, got, err, want)
			}
		}
		time.Sleep(24 * time.Hour)
		sweep(claimcheck.Removed{}) // not older than the retention yet
		time.Sleep(time.Second)
		young, fresh := put(), put()
		if err := b.claims.Settled(b.Context(), fresh); err != nil {
			b.Fatal(err)
		}
		sweep(claimcheck.Removed{Blobs: 1}) // not the body of that age
		b.wantStored(2, 1)
		purge(48*time.Hour, claimcheck.Removed{})
		purge(24*time.Hour, claimcheck.Removed{Blobs: 1, Bytes: 4})
		b.wantStored(1, 1)
		if _, err := b.claims.Open(b.Context(), old); !errors.Is(err, envelope.ErrClaimGone) {
			b.Errorf("the old body: got error %v, want ErrClaimGone", err)
		}
		if _, err := b.claims.Open(b.Context(), young); err != nil {
			b.Errorf("the young body: %v", err)
		}
		for body, err := range b.claims.List(b.Context()) {
			if err != nil || !body.Settled && (body.Size != 4 || time.Since(body.Modified) != 0) {
				b.Errorf("got %+v, %v; want the young body", body, err)
			}
		}
		for _, age := range []time.Duration{0, -1, 30} {
			if _, err := b.claims.Purge(b.Context(), age); err == nil {
				b.Errorf("Purge %v: got no error, want one", age)
			}
		}
		b.wantStored(1, 1)
	})
}

// A machine whose clock is an hour ahead of the store's, or behind it, removes what any other
// would.
func TestOnlyTheClockOfTheStoreTellsWhatIsOld(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, time.Hour} {
		bubble(t, func(b *bundle) {
			b.store.ahead = ahead
			for _, settled := range []bool{false, true} {
				claim, err := b.claims.Put(b.Context(), []byte("four"))
				if err == nil && settled {
					err = b.claims.Settled(b.Context(), claim)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			want := func(bodies, tombstones int) {
				b.Helper()
				_, err := b.claims.Sweep(b.Context())
				if _, e := b.claims.Purge(b.Context(), 24*time.Hour); err != nil || e != nil {
					b.Errorf("ahead by %v: Sweep: %v; Purge: %v", ahead, err, e)
				}
				b.wantStored(bodies, tombstones)
			}
			time.Sleep(23*time.Hour + 30*time.Minute)
			want(1, 1) // a day and a half hour by the clock of a machine that is ahead
			time.Sleep(time.Hour)
			want(0, 0)
		})
	}
}

func TestNothingIsRemovedIfTheStoreDoesNotSayItsTime(t *testing.T) {
	bubble(t, func(b *bundle) {
		for _, settled := range []bool{false, true} {
			claim, err := b.claims.Put(b.Context(), []byte("four"))
			if err == nil && settled {
				err = b.claims.Settled(b.Context(), claim)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		time.Sleep(48 * time.Hour)
		b.store.timeless = true
		_, swept := b.claims.Sweep(b.Context())
		_, purged := b.claims.Purge(b.Context(), time.Hour)
		for what, err := range map[string]error{"sweep tombstones": swept, "purge bodies": purged} {
			if err == nil || !strings.HasPrefix(err.Error(), what+": tell the age of blob://claims/bodies/") || !strings.Contains(err.Error(), "must be writable") {
				b.Errorf("got error %v, want %q and what to do", err, what)
			}
		}
		b.wantStored(1, 1)
	})
}

// A tombstone that cannot be removed, such as one with a lease, keeps no other from it. A store that
// is away is not asked for each.
func TestASweepGoesOnAfterWhatCannotBeRemoved(t *testing.T) {
	bubble(t, func(b *bundle) {
		const all = 60
		for range all {
			claim, err := b.claims.Put(b.Context(), []byte("x"))
			if err != nil {
				b.Fatal(err)
			}
			if err := b.claims.Settled(b.Context(), claim); err != nil {
				b.Fatal(err)
			}
		}
		time.Sleep(25 * time.Hour)
		locked := map[blob.Ref]bool{b.refs()[0]: true, b.refs()[all/2]: true}
		b.store.deleting = func(ref blob.Ref) error {
			if locked[ref] {
				return blob.ErrUnauthorized
			}
			return nil
		}
		if swept, err := b.claims.Sweep(b.Context()); swept.Blobs != all-2 || !errors.Is(err, blob.ErrUnauthorized) || !strings.Contains(err.Error(), "2 could not be removed") {
			b.Errorf("got %+v, %v; want all but two, and the reason", swept, err)
		}
		b.wantStored(0, 2)
		for range all {
			claim, err := b.claims.Put(b.Context(), []byte("x"))
			if err != nil {
				b.Fatal(err)
			}
			if err := b.claims.Settled(b.Context(), claim); err != nil {
				b.Fatal(err)
			}
		}
		time.Sleep(25 * time.Hour)
		b.store.deleting = func(blob.Ref) error { return blob.ErrUnavailable }
		before := b.store.count("delete")
		if swept, err := b.claims.Sweep(b.Context()); swept.Blobs != 0 || !errors.Is(err, blob.ErrUnavailable) || b.store.count("delete")-before > 10 {
			b.Errorf("away: got %+v, %v after %d tries; want an error after ten", swept, err, b.store.count("delete")-before)
		}
		ctx, stop := context.WithCancel(b.Context())
		b.store.deleting = func(blob.Ref) error { stop(); return nil }
		if swept, err := b.claims.Sweep(ctx); swept.Blobs > 1 || !errors.Is(err, context.Canceled) {
			b.Errorf("stopped: got %+v, %v; want Canceled after one", swept, err)
		}
	})
}

// A purge lists, and then deletes: a job may be done in between, and its tombstone stays. So does
// nothing that another purge has deleted.
func TestAPurgeLeavesATombstoneThatCameMeanwhile(t *testing.T) {
	bubble(t, func(b *bundle) {
		var claims []string
		for range 3 {
			claim, err := b.claims.Put(b.Context(), []byte("four"))
			if err != nil {
				b.Fatal(err)
			}
			claims = append(claims, claim)
		}
		slices.Sort(claims)
		time.Sleep(time.Hour)
		b.store.deleting = func(blob.Ref) error { // of the first
			b.store.deleting = nil
			if err := b.claims.Settled(b.Context(), claims[1]); err != nil {
				b.Error(err)
			}
			return b.blobs.Delete(b.Context(), ref(b.T, claims[2]))
		}
		if purged, err := b.claims.Purge(b.Context(), time.Minute); err != nil || purged != (claimcheck.Removed{Blobs: 1, Bytes: 4}) {
			b.Errorf("got %+v, %v; want the first alone", purged, err)
		}
		b.wantStored(0, 1)
	})
}

func TestBadOptionsAreRefused(t *testing.T) {
	for name, o := range map[string]*claimcheck.Options{
		"Limit": {Limit: -1}, "MaxBody": {MaxBody: -1}, "Timeout": {Timeout: 30}, "Retention": {Retention: -time.Hour},
	} {
		if _, err := claimcheck.New(blob.Memory(), container, o); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
	if _, err := claimcheck.New(blob.Memory(), "NO", nil); !errors.Is(err, blob.ErrInvalid) {
		t.Errorf("container: got error %v, want ErrInvalid", err)
	}
	if _, err := claimcheck.New(nil, container, nil); err == nil {
		t.Error("no store: got no error, want one")
	}
}

// FuzzOpen looks for claims that make Open panic.
func FuzzOpen(f *testing.F) {
	c, err := claimcheck.New(blob.Memory(), container, nil)
	if err != nil {
		f.Fatal(err)
	}
	claim, err := c.Put(f.Context(), []byte("abc"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(claim)
	f.Add("blob://claims/bodies/a?size=9223372036854775807&sha256=")
	f.Fuzz(func(t *testing.T, text string) {
		body, err := c.Open(t.Context(), text)
		if err == nil && string(body) != "abc" {
			t.Errorf("%q: got %q", text, body)
		}
	})
}
