package blob_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/blob"
)

func ref(name string) blob.Ref { return blob.Ref{Container: "pictures", Name: name} }

func put(t *testing.T, s blob.Store, name, text string) {
	t.Helper()
	if err := s.Put(t.Context(), ref(name), strings.NewReader(text), nil); err != nil {
		t.Fatal(err)
	}
}

// get returns the content of a blob.
func get(t *testing.T, s blob.Store, name string) string {
	t.Helper()
	r, err := s.Open(t.Context(), ref(name))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func list(t *testing.T, s blob.Store, container, prefix string) []string {
	t.Helper()
	var names []string
	for b, err := range s.List(t.Context(), container, prefix) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, b.Ref.Name)
	}
	return names
}

func dir(t *testing.T, path string) *blob.Directory {
	t.Helper()
	d, err := blob.Open(path)
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
	data, err := os.ReadFile(blob.PathOf(again, ref("a/b")))
	if err != nil || string(data) != "text" {
		t.Errorf("file %s: got %q, %v; want \"text\"", blob.PathOf(again, ref("a/b")), data, err)
	}
}

func TestTwoHandlesOnOneDirectoryAgree(t *testing.T) {
	path := t.TempDir()
	one, two := dir(t, path), dir(t, path)
	if err := one.Create(t.Context(), ref("a"), strings.NewReader("one"), nil); err != nil {
		t.Fatal(err)
	}
	if err := two.Create(t.Context(), ref("a"), strings.NewReader("two"), nil); !errors.Is(err, blob.ErrExists) {
		t.Errorf("Create through the second handle: got error %v, want ErrExists", err)
	}
	if got := get(t, two, "a"); got != "one" {
		t.Errorf("got %q; want \"one\"", got)
	}
}

// TestFilesAndFoldersArePrivate: a large body is as secret as the message that it belongs to.
func TestFilesAndFoldersArePrivate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no modes")
	}
	parent := t.TempDir()
	d := dir(t, filepath.Join(parent, "blobs", "of", "orders"))
	put(t, d, "a/b", "secret")
	if err := d.SetPublic(t.Context(), "pictures", false); err != nil {
		t.Fatal(err)
	}
	seen := 0
	err := filepath.WalkDir(filepath.Join(parent, "blobs"), func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: got mode %v, want none for others", path, info.Mode())
		}
		seen++
		return err
	})
	if want := 6; err != nil || seen != want { // three directories, the container, the blob, the policy
		t.Errorf("got %d files and folders, %v; want %d", seen, err, want)
	}
}

// TestALinkElsewhereIsNamed: the error says which link leads where, instead of "path escapes from
// parent" or "file exists".
func TestALinkElsewhereIsNamed(t *testing.T) {
	path, elsewhere := t.TempDir(), t.TempDir()
	needs(t, os.Symlink(elsewhere, filepath.Join(path, "pictures")))
	needs(t, os.Symlink("/nowhere", filepath.Join(path, "volume")))
	want := "pictures is a symbolic link to " + elsewhere
	if err := dir(t, path).Put(t.Context(), ref("a"), strings.NewReader("text"), nil); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Put: got %v, want %q", err, want)
	}
	if _, err := dir(t, path).Stat(t.Context(), ref("a")); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Stat: got %v, want %q", err, want)
	}
	want = "volume is a symbolic link to /nowhere, which does not exist"
	if _, err := blob.Open(filepath.Join(path, "volume")); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Dir: got %v, want %q", err, want)
	}
}

// TestALinkInsideIsNotBlamed: it can be used, so an error has another cause.
func TestALinkInsideIsNotBlamed(t *testing.T) {
	path := t.TempDir()
	if err := os.WriteFile(filepath.Join(path, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	needs(t, os.Symlink("file", filepath.Join(path, "pictures")))
	if err := dir(t, path).Put(t.Context(), ref("a"), strings.NewReader("text"), nil); err == nil || strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("got %v, want another error", err)
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
		if _, err := d.Stat(t.Context(), r); err == nil {
			t.Errorf("Stat of %v: got no error, want one", r)
		}
	}
	// Put over a link replaces the link, never its target.
	put(t, d, "out", "new")
	if err := d.Put(t.Context(), blob.Ref{Container: "linked", Name: "secret"}, strings.NewReader("new"), nil); err == nil {
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
		if d, err := blob.Open(path); err == nil {
			d.Close()
			t.Errorf("Open(%q): got no error, want one", path)
		}
	}
}

// If an unreachable directory were reported as a missing blob, the message would become poison.
func TestPutIntoADeletedDirectoryIsNotErrMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gone")
	d := dir(t, path)
	needs(t, os.RemoveAll(path))
	if err := d.Put(t.Context(), ref("a"), strings.NewReader(""), nil); err == nil || errors.Is(err, blob.ErrMissing) {
		t.Errorf("Put: got error %v, want one that is not ErrMissing", err)
	}
}

// The error names the directory, in case it is the wrong one.
func TestTheErrorOfAMissingBlobNamesTheDirectory(t *testing.T) {
	path := t.TempDir()
	d := dir(t, path)
	ref := blob.Ref{Container: "pictures", Name: "none"}
	_, openErr := d.Open(t.Context(), ref)
	_, statErr := d.Stat(t.Context(), ref)
	for _, err := range []error{openErr, statErr} {
		if !errors.Is(err, blob.ErrMissing) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), ref.String()) {
			t.Errorf("got error %v, want ErrMissing with %s and %v", err, path, ref)
		}
	}
}

// TestTheAgeOfAFile compares it with the time of a new file. Stat and List write nothing.
func TestTheAgeOfAFile(t *testing.T) {
	path := t.TempDir()
	put(t, dir(t, path), "old", "text")
	d := dir(t, path)
	before := time.Now().Add(-time.Hour).Truncate(time.Second)
	folder := filepath.Join(path, "pictures")
	for _, name := range []string{blob.PathOf(d, ref("old")), folder, path} {
		if err := os.Chtimes(name, before, before); err != nil {
			t.Fatal(err)
		}
	}
	wantAge := func(d *blob.Directory, unknown bool) {
		t.Helper()
		one, err := d.Stat(t.Context(), ref("old"))
		if err != nil {
			t.Fatal(err)
		}
		infos := []blob.Info{one}
		for info, err := range d.List(t.Context(), "pictures", "") {
			if err != nil {
				t.Fatal(err)
			}
			infos = append(infos, info)
		}
		for _, info := range infos {
			age, err := info.Age()
			switch {
			case unknown && (err == nil || !strings.Contains(err.Error(), "must be writable")):
				t.Errorf("read only: got %v, %v; want an error with the reason", age, err)
			case !unknown && (err != nil || age < time.Hour-time.Second || age > time.Hour+time.Minute):
				t.Errorf("got %v, %v; want an hour", age, err)
			}
		}
	}
	wantAge(d, false)
	for _, name := range []string{folder, path} { // a folder has the time at which a file was created or removed
		if info, err := os.Stat(name); err != nil || !info.ModTime().Equal(before) {
			t.Errorf("%s was written at %v, %v; want nothing since %v", name, info.ModTime(), err, before)
		}
	}
	if os.Geteuid() <= 0 {
		t.Log("not tested: a directory that the user may not write, because root may, and Windows has no modes")
		return
	}
	if err := os.Chmod(path, 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(path, 0o700) })
	wantAge(d, false)
	wantAge(dir(t, path), true)
}
