package web

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/picture"
)

// forPeople checks that a text says what happened and what to do, in sentences.
func forPeople(t *testing.T, what, text, do string) {
	t.Helper()
	for _, word := range []string{"blob", "layout", "EOF", "invalid", "context", "…", "/", "{", "<nil>", "%!"} {
		if strings.Contains(text, word) {
			t.Errorf("%s: got %q, which has %q", what, text, word)
		}
	}
	if !strings.Contains(text, do) {
		t.Errorf("%s: got %q, want the advice %q", what, text, do)
	}
	if text == "" || !unicode.IsUpper([]rune(text)[0]) && []rune(text)[0] != '“' || !strings.HasSuffix(text, ".") {
		t.Errorf("%s: got %q, want sentences", what, text)
	}
}

// The errors of processes elsewhere come as texts.
func TestEveryFailureOfAJobIsSaidInPlainWords(t *testing.T) {
	const path = "/home/ann/data/blobs: "
	full := fmt.Errorf("create blob://sliceresponse/x/000011: in %s%w", path, syscall.ENOSPC)
	for _, c := range []struct {
		err error
		say string
	}{
		{full, "disk is full"},
		{errors.New(full.Error()), "disk is full"},
		{fmt.Errorf("reading the layout: %w: it ends early", layout.ErrBadLayout), "Redrive"},
		{fmt.Errorf("read: %w", picture.ErrDamaged), "Upload it anew"},
		{fmt.Errorf("open blob://x/y: %w", blob.ErrMissing), "Upload the picture anew"},
		{errors.New("panic: index out of range"), "log"},
	} {
		forPeople(t, c.err.Error(), whyFailed(c.err), c.say)
	}
}

func TestEveryPictureThatIsRefusedIsNamedWithAWayOut(t *testing.T) {
	t.Parallel()
	s := setup(t).serve(nil)
	good := string(picturePNG(64, 64))
	heic := "\x00\x00\x00\x18ftypheic\x00\x00\x00\x00heicmif1" + strings.Repeat("\x00", 64)
	for name, c := range map[string]struct{ content, do string }{
		"text.txt":    {"hello", "choose a JPEG"},
		"cut.png":     {good[:len(good)/2], "save it as"},
		"damaged.png": {good[:60] + "xxxx" + good[64:], "save it as"},
		"huge.png":    {hugePNG(), "50,000,000 pixels"},
		"phone.heic":  {heic, "JPEG"},
	} {
		got := s.post("/jobs", field{name: "picture", value: c.content, file: name}).failure(t)
		forPeople(t, name, got, c.do)
		if !strings.Contains(got, "“"+name+"”") {
			t.Errorf("%s: got %q, want the name of the picture", name, got)
		}
	}
	small := s.post("/jobs", field{name: "picture", value: string(picturePNG(3, 3)), file: "small.png"})
	forPeople(t, "small.png", small.failure(t), "choose smaller tiles")
}

// A folder whose pictures cannot be used fails the job with a reason.
func TestTilesThatCannotBeMadeFailTheJob(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.tiles = t.TempDir()
	if err := os.WriteFile(filepath.Join(w.tiles, "a.jpg"), []byte("not a picture"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := w.serve(nil)
	end := s.until(s.make(s.small()...), failed)
	forPeople(t, "no tiles", end.Error, "-tiles")
	if strings.Contains(end.Error, w.tiles) {
		t.Errorf("error: got %q, which has a path", end.Error)
	}
}

func TestNumbersAreWrittenAsTheScriptDoes(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 123456: "123,456", 400000000: "400,000,000"} {
		if got := cli.Grouped(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}
