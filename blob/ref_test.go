package blob_test

import (
	"encoding/json"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/blob"
)

// PM-19: Parse and String are inverses.
func TestReferencesAndURIsAreInverses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := blob.Ref{
			Container: rapid.StringMatching(`[a-z0-9]{1,10}-[a-z0-9]{1,10}`).Draw(t, "container"),
			Name:      rapid.StringMatching(`[a-z0-9_-][a-z0-9._-]{0,20}[a-z0-9_-](/[a-z0-9_-]{1,8}){0,3}`).Draw(t, "name"),
		}
		got, err := blob.Parse(r.String())
		if err != nil || got != r {
			t.Fatalf("Parse(%q): got %v, %v; want the same reference", r.String(), got, err)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var read blob.Ref
		if err := json.Unmarshal(text, &read); err != nil || read != r {
			t.Fatalf("JSON %s: got %v, %v; want %v", text, read, err, r)
		}
	})
}

// PM-19: an invalid URI is an error.
func TestAnInvalidURIIsRefused(t *testing.T) {
	for _, uri := range []string{
		"", "blob:", "blob://", "blob://pictures", "blob://pictures/", "blob:///a", "pictures/a",
		"http://pictures/a", "BLOB://pictures/a", "blob://pictures/a?x=1", "blob://pictures/a#b",
		"blob://user@pictures/a", "blob://pictures/../a", "blob://pictures/%2e%2e/a", " blob://pictures/a",
	} {
		if r, err := blob.Parse(uri); !errors.Is(err, blob.ErrInvalid) {
			t.Errorf("Parse(%q): got %v, error %v; want ErrInvalid", uri, r, err)
		}
		text, _ := json.Marshal(uri)
		if err := json.Unmarshal(text, new(blob.Ref)); err == nil {
			t.Errorf("JSON %s: got no error, want one", text)
		}
	}
	if _, err := json.Marshal(blob.Ref{}); err == nil {
		t.Error("Marshal of the zero Ref: got no error, want one")
	}
}

// FuzzParse checks that an accepted URI is written as it was read.
func FuzzParse(f *testing.F) {
	f.Add("blob://pictures/a/b.png")
	f.Add("blob://../..")
	f.Fuzz(func(t *testing.T, uri string) {
		if r, err := blob.Parse(uri); err == nil && r.String() != uri {
			t.Fatalf("String: got %q, want %q", r, uri)
		}
	})
}
