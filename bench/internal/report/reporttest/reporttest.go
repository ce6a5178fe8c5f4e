// Package reporttest tests what benchmarks report.
package reporttest

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Page is a page of the documentation with the marks of a benchmark.
type Page struct {
	Path string
	name string
}

// NewPage makes a page for the benchmark of this name.
func NewPage(t *testing.T, name string) Page {
	t.Helper()
	p := Page{filepath.Join(t.TempDir(), "page.md"), name}
	if err := os.Mkdir(filepath.Join(filepath.Dir(p.Path), "images"), 0o755); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("before\n<!-- %[1]s: written by bench/%[1]s -->\nold\n<!-- %[1]s: end -->\nafter\n", name)
	if err := os.WriteFile(p.Path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

// Read returns the page and the plot beside it, and checks that only what is between the marks was replaced.
func (p Page) Read(t *testing.T) (text, plot string) {
	t.Helper()
	written, err1 := os.ReadFile(p.Path)
	drawn, err2 := os.ReadFile(filepath.Join(filepath.Dir(p.Path), "images", p.name+".svg"))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	text = string(written)
	if !strings.HasPrefix(text, "before\n") || !strings.HasSuffix(text, "\nafter\n") || strings.Contains(text, "\nold\n") {
		t.Errorf("page: got\n%s\nwant only what is between the marks replaced", text)
	}
	return text, string(drawn)
}

// WellFormed checks that a plot is XML, and that every number in it is one.
func WellFormed(t *testing.T, plot string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(plot)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, plot)
		}
	}
	for _, wrong := range []string{"%!", "NaN", "Inf"} {
		if strings.Contains(plot, wrong) {
			t.Errorf("plot: got %s in\n%s", wrong, plot)
		}
	}
}
