package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/examples/internal/cli"
)

func TestPhotographsThatCannotBeReadAreNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	folder, in, out := fewTiles(t), filepath.Join(dir, "in.png"), filepath.Join(dir, "out.png")
	photo(t, in, 40, 40)
	writeBytes(t, filepath.Join(folder, "2026", "phone.HEIC"), []byte("\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic"))
	r := mosaic(t, "render", "-in", in, "-out", out, "-tile", "8", "-slices", "2", "-tiles", folder)
	if r.status != cli.StatusDone || !strings.Contains(r.stdout, "photographs: 3 of 4 used\n") {
		t.Fatalf("got status %d, %s%s; want status %d and 3 of 4 used", r.status, r.stderr, r.stdout, cli.StatusDone)
	}
	if strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "2026/phone.HEIC") || !strings.Contains(r.stderr, "save it as JPEG") {
		t.Errorf("stderr: got %s, want one line about the HEIC and what to do", r.stderr)
	}
}
