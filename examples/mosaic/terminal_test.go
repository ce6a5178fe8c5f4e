package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Names of files come from elsewhere, such as an archive, and may be written to do harm.
func TestNoNameReachesTheTerminalAsItIs(t *testing.T) {
	if testing.Short() {
		t.Skip("makes several mosaics")
	}
	t.Parallel()
	dir := t.TempDir()
	photo(t, filepath.Join(dir, "in.png"), 16, 16)
	for name, tiles := range map[string][]string{
		"skipped":   {"\x1b[31mred\nmosaic: all is well.png", "good.png"},
		"the first": {"\x1b[31mred\nmosaic: all is well.png"},
		"folder":    {"\x1b[31m/good.png"},
	} {
		folder := filepath.Join(dir, name)
		for _, file := range tiles {
			path := filepath.Join(folder, file)
			needs(t, os.MkdirAll(filepath.Dir(path), 0o700))
			if file := filepath.Base(path); file == "good.png" {
				photo(t, path, 16, 16)
			} else {
				needs(t, os.WriteFile(path, []byte("no picture"), 0o600))
			}
		}
		if name == "folder" {
			folder = filepath.Join(folder, "\x1b[31m")
		}
		r := mosaic(t, "render", "-in", filepath.Join(dir, "in.png"), "-out", filepath.Join(dir, "out.png"), "-tile", "4", "-tiles", folder)
		if text := r.stdout + r.stderr; strings.ContainsRune(text, '\x1b') || strings.Contains(text, "\nmosaic: all") || !strings.Contains(text, `\x1b[31m`) {
			t.Errorf("%s: got %q, want the name escaped", name, text)
		}
	}
}
