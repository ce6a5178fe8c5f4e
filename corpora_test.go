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

// TestEveryFuzzTargetHasACorpus: what fuzzing found is kept, so that a plain run tries it again.
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
				t.Errorf("%s has no corpus in %s: %v", path, corpus, err)
			}
		}
		return nil
	})
	if err != nil || targets == 0 {
		t.Fatalf("%d fuzz targets, %v", targets, err)
	}
}
