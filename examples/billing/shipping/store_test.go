package shipping

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/blob"
)

func TestWhatHasNotArrivedIsMissing(t *testing.T) {
	store := blob.Memory()
	if _, _, err := ReadManifest(t.Context(), store, today); !errors.Is(err, blob.ErrMissing) || !strings.Contains(err.Error(), today) {
		t.Errorf("manifest: got %v, want that it is missing", err)
	}
	if _, err := OpenPiece(t.Context(), store, today, 0); !errors.Is(err, blob.ErrMissing) {
		t.Errorf("piece: got %v, want that it is missing", err)
	}
	if err := Delete(t.Context(), store, today, 3); err != nil {
		t.Errorf("delete: got %v", err)
	}
}

func TestNamesAreCheckedBeforeTheStoreIsAsked(t *testing.T) {
	store := &watched{blob.Memory(), t}
	if _, _, err := ReadManifest(t.Context(), store, "../x"); err == nil {
		t.Error("manifest: got no error")
	}
	for _, n := range []int{-1, MaxPieces} {
		if _, err := OpenPiece(t.Context(), store, today, n); err == nil || errors.Is(err, blob.ErrMissing) {
			t.Errorf("piece %d: got %v, want that there is none", n, err)
		}
	}
	if err := Delete(t.Context(), store, "x", 1); err == nil {
		t.Error("delete: got no error")
	}
}

// The manifest of one batch under the name of another is not taken for it.
func TestAManifestBelongsToItsBatch(t *testing.T) {
	b := batchOf(t, 1)
	text, _, err := b.Manifest.encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"2026-11-22": string(text), today: string(text[:len(text)/2]), "2026-11-20": strings.Replace(string(text), today, "2026-11-20", 1)} {
		store := blob.Memory()
		if err := store.Put(t.Context(), manifestRef(name), strings.NewReader(content), nil); err != nil {
			t.Fatal(err)
		}
		if _, _, err := ReadManifest(t.Context(), store, name); err == nil {
			t.Errorf("%s: got no error for a manifest of another batch, half of one, or one without its time", name)
		}
	}
}
