package millrace

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var fuzzTarget = regexp.MustCompile(`(?m)^func (Fuzz[A-Za-z0-9_]*)\(`)

// TestEveryFuzzTargetHasACorpus: inputs that fuzzing found are kept, so that an ordinary test run uses them.
func TestEveryFuzzTargetHasACorpus(t *testing.T) {
	targets := 0
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, found := range fuzzTarget.FindAllStringSubmatch(string(text), -1) {
			targets++
			corpus := filepath.Join(filepath.Dir(path), "testdata", "fuzz", found[1])
			if entries, err := os.ReadDir(corpus); err != nil || len(entries) == 0 {
				t.Errorf("%s: corpus in %s: got %d files, %v; want at least one", path, corpus, len(entries), err)
			}
		}
		return nil
	})
	if err != nil || targets == 0 {
		t.Fatalf("fuzz targets: got %d, %v; want at least one", targets, err)
	}
}
