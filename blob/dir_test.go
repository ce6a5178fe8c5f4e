package blob_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/blob"
)

func dir(t *testing.T, path string) *blob.Directory {
	t.Helper()
	d, err := blob.Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// needs fails a test that cannot be done on this machine. Only Windows, which does not let
// everybody make links and remove what is open, skips it.
func needs(t *testing.T, err error) {
	t.Helper()
	switch {
	case err == nil:
	case runtime.GOOS == "windows":
		t.Skip(err)
	default:
		t.Fatal(err)
	}
}

func TestADirectoryIsCreatedAndReopened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "not", "yet", "there")
	put(t, dir(t, path), "a/b", "text")
	again := dir(t, path)
	if got := get(t, again, "a/b"); got != "text" {
		t.Errorf("got %q; want \"text\"", got)
	}
	data, err := os.ReadFile(again.Path(ref("a/b")))
	if err != nil || string(data) != "text" {
		t.Errorf("file %s: got %q, %v; want \"text\"", again.Path(ref("a/b")), data, err)
	}
}

func TestTwoHandlesOnOneDirectoryAgree(t *testing.T) {
	path := t.TempDir()
	one, two := dir(t, path), dir(t, path)
	if err := one.Create(t.Context(), ref("a"), strings.NewReader("one")); err != nil {
		t.Fatal(err)
	}
	if err := two.Create(t.Context(), ref("a"), strings.NewReader("two")); !errors.Is(err, blob.ErrExists) {
		t.Errorf("Create through the second handle: got error %v, want ErrExists", err)
	}
	if got := get(t, two, "a"); got != "one" {
		t.Errorf("got %q; want \"one\"", got)
	}
}

func TestSymbolicLinksDoNotLeadOutside(t *testing.T) {
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("untouched"), 0o666); err != nil {
		t.Fatal(err)
	}
	path := t.TempDir()
	d := dir(t, path)
	put(t, d, "real", "ours")
	for link, target := range map[string]string{
		filepath.Join(path, "pictures", "out"):      secret,
		filepath.Join(path, "pictures", "relative"): filepath.Join("..", "..", filepath.Base(outside), "secret"),
		filepath.Join(path, "linked"):               outside,
	} {
		needs(t, os.Symlink(target, link))
	}
	for _, r := range []blob.Ref{ref("out"), ref("relative"), {Container: "linked", Name: "secret"}} {
		if b, err := d.Open(t.Context(), r); err == nil {
			b.Close()
			t.Errorf("Open of %v: got no error, want one", r)
		}
		if _, err := d.Size(t.Context(), r); err == nil {
			t.Errorf("Size of %v: got no error, want one", r)
		}
	}
	// Put over a link replaces the link, never its target.
	put(t, d, "out", "new")
	if err := d.Put(t.Context(), blob.Ref{Container: "linked", Name: "secret"}, strings.NewReader("new")); err == nil {
		t.Error("Put through a link: got no error, want one")
	}
	if err := d.Delete(t.Context(), blob.Ref{Container: "linked", Name: "secret"}); err == nil {
		t.Error("Delete through a link: got no error, want one")
	}
	if data, err := os.ReadFile(secret); err != nil || string(data) != "untouched" {
		t.Errorf("file outside: got %q, %v; want \"untouched\"", data, err)
	}
	if got := list(t, d, "pictures", "re"); len(got) != 1 || got[0] != "real" {
		t.Errorf("List: got %v, want [real]", got)
	}
}

func TestListSkipsOtherFiles(t *testing.T) {
	path := t.TempDir()
	d := dir(t, path)
	put(t, d, "real", "")
	folder := filepath.Join(path, "pictures")
	for _, name := range []string{".DS_Store", "Thumbs.db", "a~"} {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(folder, "folder"), 0o777); err != nil {
		t.Fatal(err)
	}
	if got := list(t, d, "pictures", ""); len(got) != 1 {
		t.Errorf("List: got %v, want only [real]", got)
	}
	if r, err := d.Open(t.Context(), ref("folder")); err == nil {
		r.Close()
		t.Error("Open of a folder: got no error, want one")
	}
}

func TestPartialFilesOfKilledWritersAreRemoved(t *testing.T) {
	path := t.TempDir()
	put(t, dir(t, path), "real", "")
	old, young := filepath.Join(path, "pictures", ".partial-old"), filepath.Join(path, "pictures", ".partial-young")
	for _, f := range []string{old, young} {
		if err := os.WriteFile(f, []byte("half"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	yesterday := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(old, yesterday, yesterday); err != nil {
		t.Fatal(err)
	}
	d := dir(t, path)
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("old partial file: got error %v, want it removed", err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("young partial file, which may still be written: got error %v, want it kept", err)
	}
	if got := get(t, d, "real"); got != "" {
		t.Errorf("got %q; want \"\"", got)
	}
}

func TestAnUnusableDirectoryIsAnError(t *testing.T) {
	taken := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(taken, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{taken, filepath.Join(taken, "below"), ""} {
		if d, err := blob.Dir(path); err == nil {
			d.Close()
			t.Errorf("Dir(%q): got no error, want one", path)
		}
	}
}

// If an unreachable directory were reported as a missing blob, the message would become poison.
func TestPutIntoADeletedDirectoryIsNotErrMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gone")
	d := dir(t, path)
	needs(t, os.RemoveAll(path))
	if err := d.Put(t.Context(), ref("a"), strings.NewReader("")); err == nil || errors.Is(err, blob.ErrMissing) {
		t.Errorf("Put: got error %v, want one that is not ErrMissing", err)
	}
}

// The error names the directory, in case it is the wrong one.
func TestTheErrorOfAMissingBlobNamesTheDirectory(t *testing.T) {
	path := t.TempDir()
	d := dir(t, path)
	ref := blob.Ref{Container: "pictures", Name: "none"}
	_, openErr := d.Open(t.Context(), ref)
	_, sizeErr := d.Size(t.Context(), ref)
	for _, err := range []error{openErr, sizeErr} {
		if !errors.Is(err, blob.ErrMissing) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), ref.String()) {
			t.Errorf("got error %v, want ErrMissing with %s and %v", err, path, ref)
		}
	}
}
