package web

import (
	"net/http"
	"strings"
	"testing"
)

// pageOf gets a page as a browser does.
func (s *site) pageOf(path string) string {
	s.t.Helper()
	r := s.do(http.MethodGet, path, nil, "Accept", "text/html")
	if r.status != http.StatusOK {
		s.t.Fatalf("GET %s: got %d %s, want a page", path, r.status, r.body)
	}
	return string(r.body)
}

// has checks that a page has each of these texts.
func has(t *testing.T, what, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("%s: got no %q in\n%s", what, text, page)
		}
	}
}

// The whole way without a script: the page has a link, which leads to a question, which has the form.
func TestAnUploadedLibraryIsDeletedFromThePage(t *testing.T) {
	w := setup(t)
	s := w.serve(nil)
	key := s.upload(2)
	address := "/libraries/" + key + "/delete"
	has(t, "the page", s.pageOf("/"), `href="`+address+`"`, "the library Holiday")
	id := s.make(s.with(key)...)
	s.until(id, done)
	question := s.pageOf(address)
	has(t, "the question", question, "Delete the library “Holiday”?", `method="post" action="`+address+`"`, "One mosaic was made of it", "Keep it")
	if strings.Contains(question, "failed") {
		t.Errorf("the question: got mosaics that failed, and there are none")
	}
	if got := w.entries(librariesFolder); len(got) != 1 {
		t.Fatalf("after the question: got %q, want the library still there", got)
	}
	body, kind := multipartForm()
	if r := s.do(http.MethodPost, address, body, "Content-Type", kind, "Accept", "text/html"); r.status != http.StatusSeeOther || r.header.Get("Location") != "/" {
		t.Errorf("delete: got %d to %q, want the page", r.status, r.header.Get("Location"))
	}
	if page := s.pageOf("/"); strings.Contains(page, key) {
		t.Errorf("after it: got the library still on the page")
	}
	for _, folder := range []string{librariesFolder, incomingFolder} {
		if got := w.entries(folder); len(got) != 0 {
			t.Errorf("%s: got %q, want nothing", folder, got)
		}
	}
	for _, other := range []string{key, generated, folderKey(w.tiles), "none"} {
		if r := s.get("/libraries/" + other + "/delete"); r.status != http.StatusNotFound {
			t.Errorf("the question about %q: got %d, want 404", other, r.status)
		}
	}
}

// What the question says must be what the answer does.
func TestTheQuestionNamesTheMosaicThatWaitsForALibrary(t *testing.T) {
	w := setup(t)
	s := w.serve(func(o *Options) { o.Limits.Running = 1 })
	key := s.upload(2)
	pass := w.store.hold()
	first := s.make(s.small()...)
	s.until(first, working)
	second := s.make(s.with(key)...)
	question := s.pageOf("/libraries/" + key + "/delete")
	has(t, "the question", question, "The mosaic of “small.png” still needs", "Back")
	if strings.Contains(question, "<form") {
		t.Error("the question: got a form that would be refused")
	}
	if r := s.post("/libraries/" + key + "/delete"); r.status != http.StatusConflict || !strings.Contains(r.failure(t), "“small.png”") {
		t.Errorf("delete: got %d %s, want 409 with the mosaic", r.status, r.body)
	}
	pass(-1)
	s.until(second, done)
}

func TestAJobIsDeletedAfterAQuestion(t *testing.T) {
	w := setup(t)
	s := w.serve(nil)
	pass := w.store.hold()
	id := s.make(s.small()...)
	s.until(id, working)
	address := "/jobs/" + id + "/delete"
	has(t, "the page", s.pageOf("/jobs/"+id), `href="`+address+`"`)
	has(t, "the question", s.pageOf(address), "Delete the mosaic of “small.png”?", "still being made", `action="`+address+`"`)
	pass(-1)
	s.until(id, done)
	if page := s.pageOf(address); strings.Contains(page, "still being made") {
		t.Error("the question: got that it is still being made, and it is finished")
	}
}
