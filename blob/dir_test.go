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

func TestADirectoryIsMadeAndFoundAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "not", "yet", "there")
	put(t, dir(t, path), "a/b", "text")
	again := dir(t, path)
	if got := get(t, again, "a/b"); got != "text" {
		t.Errorf("got %q", got)
	}
	data, err := os.ReadFile(again.Path(ref("a/b")))
	if err != nil || string(data) != "text" {
		t.Errorf("at %s there is %q, %v", again.Path(ref("a/b")), data, err)
	}
}

func TestTwoHandlesOnOneDirectoryAgree(t *testing.T) {
	path := t.TempDir()
	one, two := dir(t, path), dir(t, path)
	if err := one.Create(t.Context(), ref("a"), strings.NewReader("one")); err != nil {
		t.Fatal(err)
	}
	if err := two.Create(t.Context(), ref("a"), strings.NewReader("two")); !errors.Is(err, blob.ErrExists) {
		t.Errorf("create through the second: %v", err)
	}
	if got := get(t, two, "a"); got != "one" {
		t.Errorf("got %q", got)
	}
}

func TestNoSymbolicLinkLeadsOut(t *testing.T) {
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
			t.Errorf("%v was opened", r)
		}
		if _, err := d.Size(t.Context(), r); err == nil {
			t.Errorf("%v has a size", r)
		}
	}
	// Replacing a link replaces the link, never what it points to.
	put(t, d, "out", "new")
	if err := d.Put(t.Context(), blob.Ref{Container: "linked", Name: "secret"}, strings.NewReader("new")); err == nil {
		t.Error("a blob was put through a link")
	}
	if err := d.Delete(t.Context(), blob.Ref{Container: "linked", Name: "secret"}); err == nil {
		t.Error("a blob was deleted through a link")
	}
	if data, err := os.ReadFile(secret); err != nil || string(data) != "untouched" {
		t.Errorf("outside there is %q, %v", data, err)
	}
	if got := list(t, d, "pictures", "re"); len(got) != 1 || got[0] != "real" {
		t.Errorf("listed %v", got)
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
		t.Errorf("listed %v", got)
	}
	if r, err := d.Open(t.Context(), ref("folder")); err == nil {
		r.Close()
		t.Error("a folder was opened")
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
		t.Errorf("the old one is still there: %v", err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("the young one, which somebody may be writing: %v", err)
	}
	if got := get(t, d, "real"); got != "" {
		t.Errorf("got %q", got)
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
			t.Errorf("%q was opened", path)
		}
	}
}

// TestPutIntoADeletedDirectoryIsNotErrMissing: taking an unreachable directory for a
// missing blob would make its message poison.
func TestPutIntoADeletedDirectoryIsNotErrMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gone")
	d := dir(t, path)
	needs(t, os.RemoveAll(path))
	if err := d.Put(t.Context(), ref("a"), strings.NewReader("")); err == nil || errors.Is(err, blob.ErrMissing) {
		t.Errorf("put: %v", err)
	}
}

// TestAMissingBlobIsMissingFromADirectory: the error names the directory, in case it is the
// wrong one.
func TestAMissingBlobIsMissingFromADirectory(t *testing.T) {
	path := t.TempDir()
	d := dir(t, path)
	ref := blob.Ref{Container: "pictures", Name: "none"}
	_, opened := d.Open(t.Context(), ref)
	_, looked := d.Size(t.Context(), ref)
	for _, err := range []error{opened, looked} {
		if !errors.Is(err, blob.ErrMissing) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), ref.String()) {
			t.Errorf("%v", err)
		}
	}
}
