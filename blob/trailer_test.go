package blob_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/blob"
)

// file returns the bytes of a blob's file.
func file(t *testing.T, d *blob.Directory, name string) string {
	t.Helper()
	data, err := os.ReadFile(blob.PathOf(d, ref(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func withKind(kind string) *blob.PutOptions {
	return &blob.PutOptions{Metadata: map[string]string{"kind": kind}}
}

func TestTheFileOfABlobWithoutMetadataIsItsContent(t *testing.T) {
	d := dir(t, t.TempDir())
	put(t, d, "a", "text")
	if err := d.Put(t.Context(), ref("b"), strings.NewReader("text"), withKind("x")); err != nil {
		t.Fatal(err)
	}
	if err := d.SetPublic(t.Context(), "pictures", true); err != nil {
		t.Fatal(err)
	}
	if got := file(t, d, "a"); got != "text" {
		t.Errorf("the file has %q", got)
	}
	if got := file(t, d, "b"); !strings.HasPrefix(got, `text{"kind":"x"}`) {
		t.Errorf("the file with metadata has %q", got)
	}
}

// TestFilesOfOlderVersionsAreBlobs: they are content alone.
func TestFilesOfOlderVersionsAreBlobs(t *testing.T) {
	path := t.TempDir()
	if err := os.Mkdir(filepath.Join(path, "pictures"), 0o777); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"empty": "", "short": "x", "long": strings.Repeat("long ", 1000)} {
		if err := os.WriteFile(filepath.Join(path, "pictures", name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		d := dir(t, path)
		info, err := d.Stat(t.Context(), ref(name))
		if got := get(t, d, name); got != text || err != nil || info.Size != int64(len(text)) || info.Metadata != nil {
			t.Errorf("%s: got %d bytes, %+v, %v", name, len(got), info, err)
		}
	}
}

// TestContentThatLooksLikeMetadataComesBack: a file of a blob is a blob's content too.
func TestContentThatLooksLikeMetadataComesBack(t *testing.T) {
	d := dir(t, t.TempDir())
	if err := d.Put(t.Context(), ref("a"), strings.NewReader("text"), withKind("x")); err != nil {
		t.Fatal(err)
	}
	trailer := strings.TrimPrefix(file(t, d, "a"), "text")
	rapid.Check(t, func(r *rapid.T) {
		var content strings.Builder
		for range rapid.IntRange(0, 4).Draw(r, "parts") {
			content.WriteString(rapid.SampledFrom([]string{"text", trailer, trailer[1:], trailer[:len(trailer)-1], strings.ToUpper(trailer), "\n"}).Draw(r, "part"))
		}
		o := rapid.SampledFrom([]*blob.PutOptions{nil, withKind("y")}).Draw(r, "options")
		if err := d.Put(t.Context(), ref("b"), strings.NewReader(content.String()), o); err != nil {
			r.Fatal(err)
		}
		b, err := d.Open(t.Context(), ref("b"))
		if err != nil {
			r.Fatal(err)
		}
		defer b.Close()
		got, err := io.ReadAll(b)
		if err != nil || string(got) != content.String() || (o == nil) != (b.Metadata == nil) {
			r.Fatalf("%q came back as %q with %v, %v", content.String(), got, b.Metadata, err)
		}
	})
}

// TestDamagedMetadataAreAnError: they must not pass for content.
func TestDamagedMetadataAreAnError(t *testing.T) {
	d := dir(t, t.TempDir())
	if err := d.Put(t.Context(), ref("a"), strings.NewReader("text"), withKind("x")); err != nil {
		t.Fatal(err)
	}
	whole := file(t, d, "a")
	for name, damaged := range map[string]string{
		"JSON":               strings.Replace(whole, "kind", "kinD", 1),
		"length":             strings.Replace(whole, "/1 0000000", "/1 0000001", 1),
		"length, not number": strings.Replace(whole, "/1 0", "/1 g", 1),
		"length, huge":       strings.Replace(whole, "/1 0", "/1 f", 1),
		"checksum":           whole[:len(whole)-3] + "zz\n",
		"start":              strings.TrimPrefix(whole, `text{"k`),
	} {
		if err := os.WriteFile(blob.PathOf(d, ref("a")), []byte(damaged), 0o666); err != nil {
			t.Fatal(err)
		}
		_, stat := d.Stat(t.Context(), ref("a"))
		_, open := d.Open(t.Context(), ref("a"))
		var list error
		for _, list = range d.List(t.Context(), "pictures", "") {
		}
		for op, err := range map[string]error{"stat": stat, "open": open, "list": list} {
			if err == nil || !strings.Contains(err.Error(), "damaged") || !strings.Contains(err.Error(), "blob://pictures/") {
				t.Errorf("%s: %s: %v", name, op, err)
			}
		}
		put(t, d, "a", "text") // a damaged blob can be replaced
		if got := get(t, d, "a"); got != "text" {
			t.Errorf("%s: after replacing: %q", name, got)
		}
	}
}

func TestADamagedAccessPolicyIsAnError(t *testing.T) {
	path := t.TempDir()
	d := dir(t, path)
	put(t, d, "a", "")
	if err := os.WriteFile(filepath.Join(path, "pictures", ".access"), []byte("everybody"), 0o666); err != nil {
		t.Fatal(err)
	}
	if public, err := d.Public(t.Context(), "pictures"); err == nil || public || !strings.Contains(err.Error(), path) {
		t.Errorf("public is %v, %v", public, err)
	}
}
