package web

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/roles"
	"github.com/millrace/millrace/examples/mosaic/tiles"
	"github.com/millrace/millrace/queue"
)

// jargon are words that only mean something to whoever wrote the program.
var jargon = []string{"blob", "layout", "EOF", "error", "invalid", "context", "sentinel", "…", "/", "{", "not a tile library", "<nil>", "%!"}

// forPeople checks that a text says what happened and what to do, in sentences.
func forPeople(t *testing.T, what, text, do string) {
	t.Helper()
	for _, word := range jargon {
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

// What processes elsewhere fail with comes as a text.
func TestEveryFailureOfAJobIsSaidInPlainWords(t *testing.T) {
	const path = "/home/ann/data/blobs: "
	full := fmt.Errorf("create blob://sliceresponse/x/000011: in %s%w", path, syscall.ENOSPC)
	for _, c := range []struct {
		err error
		say []string
	}{
		{full, []string{"disk is full", "Delete"}},
		{&roles.FailedError{Reason: full.Error()}, []string{"disk is full", "Delete"}},
		{&roles.KeptError{Where: path, Err: full}, []string{"disk is full", "Delete"}},
		{&roles.KeptError{Where: path, Err: errors.New("permission denied")}, []string{"could not be saved", "log"}},
		{&roles.FailedError{Reason: fmt.Errorf("reading the layout: %w: it ends early", layout.ErrBadLayout).Error()}, []string{"A slice", "damaged", "Try again"}},
		{&roles.FailedError{Reason: fmt.Errorf("reading the tile library: %w: EOF", tiles.ErrBadLibrary).Error()}, []string{"tiles", "damaged", "another tile size"}},
		{fmt.Errorf("open blob://x/y: %w", blob.ErrMissing), []string{"removed", "Try again"}},
		{&roles.FailedError{Reason: fmt.Errorf("open blob://x/y: %w: it was deleted", blob.ErrMissing).Error()}, []string{"removed", "Try again"}},
		{&roles.FailedError{Reason: "panic: index out of range"}, []string{"again and again", "Try again", "log"}},
		{fmt.Errorf("the picture cannot be sent to the roles: %w", queue.ErrUnauthorized), []string{"does not let", "check the account"}},
		{errors.New("read /home/ann/x: input/output error"), []string{"Try again", "log"}},
	} {
		got := whyFailed("harbour.jpg", c.err)
		forPeople(t, c.err.Error(), got, c.say[0])
		for _, say := range append(c.say, "“harbour.jpg”") {
			if !strings.Contains(got, say) {
				t.Errorf("%v: got %q, want %q", c.err, got, say)
			}
		}
	}
	forPeople(t, "a limit", whyFailed("x", fmt.Errorf("wrapped: %w", outOfTime(time.Hour))), "Try again")
}

func TestEveryPictureThatIsRefusedIsNamedWithAWayOut(t *testing.T) {
	s := setup(t).serve(nil)
	good := string(picturePNG(64, 64))
	heic := "\x00\x00\x00\x18ftypheic\x00\x00\x00\x00heicmif1" + strings.Repeat("\x00", 64)
	for name, c := range map[string]struct{ content, do string }{
		"text.txt":    {"hello", "choose a JPEG"},
		"cut.png":     {good[:len(good)/2], "save it as"},
		"damaged.png": {good[:60] + "xxxx" + good[64:], "save it as"},
		"huge.png":    {hugePNG(), "scale it down"},
		"phone.heic":  {heic, "JPEG"},
	} {
		r := s.post("/jobs", field{name: "picture", value: c.content, file: name})
		got := r.failure(t)
		forPeople(t, name, strings.ReplaceAll(got, "16384×16384", ""), c.do)
		if !strings.Contains(got, "“"+name+"”") {
			t.Errorf("%s: got %q, want the name of the picture", name, got)
		}
	}
	small := s.post("/jobs", field{name: "picture", value: string(picturePNG(3, 3)), file: "small.png"})
	forPeople(t, "small.png", small.failure(t), "choose smaller tiles")
	forPeople(t, "no picture", s.post("/jobs").failure(t), "choose a picture"[1:])
}

// A folder whose pictures cannot be used, and one that was deleted between a failure and the next try.
func TestTilesThatCannotBeMadeAreExplained(t *testing.T) {
	w := setup(t)
	bad := t.TempDir()
	if err := os.WriteFile(filepath.Join(bad, "a.jpg"), []byte("not a picture"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := w.serve(func(o *Options) {
		o.Libraries = append(o.Libraries, Folder{"Bad", bad}, Folder{"Empty", t.TempDir()})
	})
	for key, say := range map[string]string{folderKey(bad): "None of the photographs of “Bad”", folderKey(s.options.Libraries[2].Path): "no photographs in “Empty”"} {
		id := s.make(append(s.small(), field{name: "library", value: key})...)
		end := s.until(id, failed)
		forPeople(t, key, end.Error, say)
	}
	r := s.post("/libraries", field{name: "name", value: "Own"}, field{name: "pictures", value: "not a picture", file: "a.png"})
	key, _ := r.json(t)["key"].(string)
	id := s.make(append(s.small(), field{name: "library", value: key})...)
	forPeople(t, "uploaded", s.until(id, failed).Error, "None of the photographs of “Own”")
	if r := s.post("/libraries/" + key + "/delete"); r.status != http.StatusOK {
		t.Fatalf("delete: got %d %s", r.status, r.body)
	}
	if r := s.post("/jobs/" + id + "/retry"); r.status != http.StatusOK {
		t.Fatalf("retry: got %d %s", r.status, r.body)
	}
	all := s.events("/jobs/"+id+"/events", func(e event) bool { return e.State == failed && strings.Contains(e.Error, "deleted") })
	forPeople(t, "deleted tiles", all[len(all)-1].Error, "Make a new one")
}
