package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/video/index"
	"github.com/millrace/millrace/internal/webpage"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/table"
)

// web is the web role, an [http.Handler].
type web struct {
	*site
	index     *index.Index
	producers map[string]*producer.Producer[job] // by class
	reindex   *producer.Producer[indexJob]
	pages     *template.Template
	handler   http.Handler
}

//go:embed static templates
var files embed.FS

// policy allows the pages their styles and clips, and forms to this server.
const policy = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func newWeb(s *site, x *index.Index, host string) (*web, error) {
	w := &web{site: s, index: x, producers: map[string]*producer.Producer[job]{}}
	for _, c := range s.classes {
		w.producers[c.name] = producer.New(c.queue, &producer.Options[job]{Create: true})
	}
	w.reindex = producer.New(s.indexing, &producer.Options[indexJob]{Create: true})
	var err error
	if w.pages, err = template.ParseFS(files, "templates/*.html"); err != nil {
		return nil, err
	}
	own, err := fs.Sub(files, "static")
	if err != nil {
		return nil, err
	}
	nothing := w.page(func(http.ResponseWriter, *http.Request) error { return errNoPage })
	static, err := webpage.Static(own, nothing)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", w.page(w.list))
	mux.Handle("GET /upload", w.page(w.form))
	mux.Handle("POST /upload", w.page(w.upload))
	mux.Handle("GET /watch/{video}", w.page(w.watch))
	mux.Handle("POST /watch/{video}", w.page(w.correct))
	mux.Handle("GET /search", w.page(w.search))
	mux.Handle("GET /clips/{video}/{format}", w.page(w.clip))
	mux.Handle("GET /static/{file}", static)
	mux.Handle("GET /", nothing)
	guard := webpage.Guard{Policy: policy, Foreign: w.page(func(http.ResponseWriter, *http.Request) error {
		return &refusal{http.StatusForbidden, "This request comes from another page, so nothing was done."}
	})}
	if host != "" {
		guard.Hosts = []string{host}
	}
	w.handler = guard.Handler(mux)
	return w, nil
}

// ServeHTTP implements [http.Handler].
func (w *web) ServeHTTP(rw http.ResponseWriter, r *http.Request) { w.handler.ServeHTTP(rw, r) }

// refusal is an error for the visitor, with the status of its response.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

var errNoPage = &refusal{http.StatusNotFound, "There is no page at this address."}

// page returns a handler that shows the error of an action as a page. An action returns one only before it has written anything.
func (w *web) page(action func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		err := action(rw, r.WithContext(ctx))
		if err == nil || r.Context().Err() != nil { // the visitor has left
			return
		}
		why := (*refusal)(nil)
		large := (*http.MaxBytesError)(nil)
		switch {
		case errors.As(err, &why):
		case errors.As(err, &large):
			why = &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("A clip may have up to %d MB.", maxBytes>>20)}
		case errors.Is(err, blob.ErrMissing):
			why = &refusal{http.StatusNotFound, "There is no video at this address."}
		case errors.Is(err, errClip), errors.Is(err, index.ErrCredits), errors.Is(err, index.ErrQuery):
			why = &refusal{http.StatusBadRequest, sentence(err.Error())}
		case queue.Transient(err), blob.Transient(err), table.Transient(err), errors.Is(err, context.DeadlineExceeded):
			w.logger.Error("the site could not reach its stores", "path", r.URL.Path, "error", err.Error())
			why = &refusal{http.StatusServiceUnavailable, "The site does not reach its stores at the moment. Try again in a few seconds."}
		default: // its text may say how the program is set up
			w.logger.Error("a request failed", "path", r.URL.Path, "error", err.Error())
			why = &refusal{http.StatusInternalServerError, "That did not work. The log of the program says why."}
		}
		_ = w.show(rw, why.status, "error.html", map[string]any{"Title": "That did not work", "Text": why.text}) // without a fallback
	})
}

// sentence makes an error one that begins and ends as a sentence does.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] + "." }

func (w *web) show(rw http.ResponseWriter, status int, name string, data map[string]any) error {
	var b bytes.Buffer
	if err := w.pages.ExecuteTemplate(&b, name, data); err != nil {
		return err
	}
	rw.Header().Set("Content-Type", "text/html; charset=utf-8")
	rw.Header().Set("Cache-Control", "no-store")
	rw.WriteHeader(status)
	_, _ = rw.Write(b.Bytes()) // the visitor may have left
	return nil
}

// entry is a video of a list.
type entry struct {
	Name string
	index.Credits
	state
}

// onPage is how many videos a page lists.
const onPage = 24

// list shows the newest videos; their names are in the order of their age.
func (w *web) list(rw http.ResponseWriter, r *http.Request) error {
	after := r.FormValue("after")
	var all []entry
	next := ""
	for info, err := range w.clips.List(r.Context(), credits, "") {
		if err != nil {
			return err
		}
		name, _, _ := strings.Cut(info.Ref.Name, "/")
		if name <= after {
			continue
		}
		c, err := index.FromMetadata(info.Metadata)
		switch last := len(all) - 1; {
		case err != nil: // no page of ours wrote them
		case last >= 0 && all[last].Name == name:
			all[last].Credits = c // a newer version
		case len(all) == onPage:
			next = all[last].Name
		default:
			all = append(all, entry{Name: name, Credits: c})
		}
		if next != "" {
			break
		}
	}
	if err := w.states(r.Context(), all); err != nil {
		return err
	}
	return w.show(rw, http.StatusOK, "list.html", map[string]any{"Title": "Videos", "Videos": all, "Next": next, "After": after})
}

func (w *web) states(ctx context.Context, all []entry) (err error) {
	for i := range all {
		if all[i].state, err = w.state(ctx, all[i].Name); err != nil {
			return err
		}
	}
	return nil
}

// search shows the videos that match a query.
func (w *web) search(rw http.ResponseWriter, r *http.Request) error {
	text := r.FormValue("q")
	data := map[string]any{"Title": "Search", "Query": text}
	if strings.TrimSpace(text) == "" {
		return w.show(rw, http.StatusOK, "search.html", data)
	}
	q, err := index.ParseQuery(text)
	if err != nil {
		return err
	}
	found, err := w.index.Search(r.Context(), q, r.FormValue("from"), onPage)
	if err != nil {
		return err
	}
	var all []entry
	for _, v := range found.Videos {
		all = append(all, entry{Name: v.Name, Credits: v.Credits})
	}
	if err := w.states(r.Context(), all); err != nil {
		return err
	}
	data["Videos"], data["Next"], data["Asked"] = all, found.Next, true
	return w.show(rw, http.StatusOK, "search.html", data)
}

// newName returns the name of a new video. The newest comes first in every order of names.
func newName() string {
	const last = 1 << 44 // milliseconds, in the year 2527
	return fmt.Sprintf("%011x-%08x", last-time.Now().UnixMilli(), rand.Uint32())
}

var isName = regexp.MustCompile(`^[0-9a-f]{11}-[0-9a-f]{8}$`).MatchString

// form shows the form of an upload. It carries the name of the video, so that a form that is sent twice uploads once.
func (w *web) form(rw http.ResponseWriter, _ *http.Request) error {
	return w.show(rw, http.StatusOK, "upload.html", map[string]any{"Title": "Upload a clip", "Name": newName(), "MB": maxBytes >> 20, "Empty": index.Credits{}})
}

// upload takes a clip, and leads to its page.
func (w *web) upload(rw http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(rw, r.Body, maxBytes+64<<10)
	if err := r.ParseMultipartForm(64 << 10); err != nil { // more is in a file: a slow visitor holds no memory
		if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
			return err
		}
		return &refusal{http.StatusBadRequest, "The form did not arrive whole, or is not one of this site."}
	}
	defer func() { _ = r.MultipartForm.RemoveAll() }() // temporary files
	name := r.FormValue("name")
	if !isName(name) {
		return &refusal{http.StatusBadRequest, "This form is not one of this site. Open the upload page again."}
	}
	file, _, err := r.FormFile("clip")
	if err != nil {
		return &refusal{http.StatusBadRequest, "Choose a clip."}
	}
	clip, err := io.ReadAll(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := w.accept(r.Context(), name, clip, creditsOf(r), r.FormValue("news") != ""); err != nil {
		return err
	}
	http.Redirect(rw, r, "/watch/"+name, http.StatusSeeOther)
	return nil
}

// creditsOf reads the credits in a form: names and keywords are separated by commas.
func creditsOf(r *http.Request) index.Credits {
	list := func(field string) (all []string) {
		for part := range strings.SplitSeq(r.FormValue(field), ",") {
			if part = strings.TrimSpace(part); part != "" {
				all = append(all, part)
			}
		}
		return all
	}
	return index.Credits{Title: strings.TrimSpace(r.FormValue("title")), Actors: list("actors"), Directors: list("directors"), Keywords: list("keywords")}
}

// accept stores a clip and its credits, and then enqueues its job, which would fail without them. Each step may be repeated.
func (w *web) accept(ctx context.Context, name string, clip []byte, c index.Credits, news bool) error {
	measured, err := measure(clip)
	if err != nil {
		return err
	}
	metadata, err := c.Metadata()
	if err != nil {
		return err
	}
	err = w.clips.Create(ctx, blob.Ref{Container: uploads, Name: name}, bytes.NewReader(clip), nil)
	if err == nil || errors.Is(err, blob.ErrExists) {
		err = w.clips.Create(ctx, creditsRef(name, 1), strings.NewReader(""), &blob.PutOptions{Metadata: metadata})
	}
	if err != nil && !errors.Is(err, blob.ErrExists) {
		return err
	}
	class := ordinary
	switch {
	case news:
		class = critical
	case measured.pixels > heavyPixels:
		class = heavy
	}
	_, err = w.producers[class].Send(ctx, job{Video: name, Class: class, Uploaded: time.Now()}, nil)
	return err
}

// watch shows a video, or how far it is.
func (w *web) watch(rw http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("video")
	if !isName(name) {
		return errNoPage
	}
	c, version, err := w.credits(r.Context(), name)
	if err != nil {
		return err
	}
	st, err := w.state(r.Context(), name)
	if err != nil {
		return err
	}
	return w.show(rw, http.StatusOK, "watch.html", map[string]any{
		"Title": c.Title, "Video": entry{name, c, st}, "Next": version + 1, "Formats": formats, "Waits": !st.Ready && st.Failed == "",
	})
}

// correct stores the next version of a video's credits. The form names it, so of two that correct the same version the second is refused.
func (w *web) correct(rw http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("video")
	if !isName(name) {
		return errNoPage
	}
	r.Body = http.MaxBytesReader(rw, r.Body, 64<<10)
	if err := r.ParseForm(); err != nil {
		return &refusal{http.StatusBadRequest, "The form did not arrive whole, or is not one of this site."}
	}
	metadata, err := creditsOf(r).Metadata()
	if err != nil {
		return err
	}
	_, version, err := w.credits(r.Context(), name)
	if err != nil {
		return err
	}
	if r.FormValue("version") != fmt.Sprint(version+1) {
		err = blob.ErrExists
	} else {
		err = w.clips.Create(r.Context(), creditsRef(name, version+1), strings.NewReader(""), &blob.PutOptions{Metadata: metadata})
	}
	if errors.Is(err, blob.ErrExists) {
		return &refusal{http.StatusConflict, "Someone corrected these credits meanwhile. Open the video again."}
	}
	if err != nil {
		return err
	}
	if _, err := w.reindex.Send(r.Context(), indexJob{name}, nil); err != nil {
		return err
	}
	http.Redirect(rw, r, "/watch/"+name, http.StatusSeeOther)
	return nil
}

// clip serves one format of a clip.
func (w *web) clip(rw http.ResponseWriter, r *http.Request) error {
	name, kind := r.PathValue("video"), ""
	for _, f := range formats {
		if f.Name == r.PathValue("format") {
			kind = f.kind
		}
	}
	if !isName(name) || kind == "" {
		return errNoPage
	}
	b, err := w.clips.Open(r.Context(), formatRef(name, r.PathValue("format")))
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }() // it was only read
	rw.Header().Set("Content-Type", kind)
	rw.Header().Set("Content-Length", fmt.Sprint(b.Size))
	rw.Header().Set("Cache-Control", "private, max-age=3600, immutable") // formats depend only on the upload
	_, _ = io.Copy(rw, b)                                                // the visitor may have left
	return nil
}

// Names and words of the invented credits.
var (
	firstNames = []string{"Zoe", "Amara", "Bram", "Chiyo", "Dario", "Edda", "Farid", "Gwen", "Håkon", "Ines", "Jovan", "Kaito"}
	lastNames  = []string{"Okafor", "Lindqvist", "O'Hara", "Petrova", "Quispe", "Rademaker", "Sato", "Tamm", "Underhill", "Vass"}
	openings   = []string{"The Silent", "A Distant", "Return to the", "Beneath the", "Letters from the", "The Last"}
	places     = []string{"Sea", "Harbour", "Glass House", "Mountain", "Seaside Hotel", "Orchard", "Lighthouse", "River"}
	keywords   = []string{"storm", "ship", "love", "night", "train", "music", "winter", "news", "science", "comedy"}
)

// inventCredits returns credits of an imaginary film. They depend on the seed alone.
func inventCredits(seed uint64) index.Credits {
	random := rand.New(rand.NewPCG(seed, 1))
	pick := func(from []string) string { return from[random.IntN(len(from))] }
	c := index.Credits{Title: pick(openings) + " " + pick(places), Directors: []string{pick(firstNames) + " " + pick(lastNames)}}
	for range 1 + random.IntN(3) {
		c.Actors = append(c.Actors, pick(firstNames)+" "+pick(lastNames))
	}
	for _, i := range random.Perm(len(keywords))[:1+random.IntN(3)] {
		c.Keywords = append(c.Keywords, keywords[i])
	}
	return c
}

// samples uploads a few clips to a site without any.
func (w *web) samples(ctx context.Context) error {
	for _, err := range w.clips.List(ctx, credits, "") {
		return err // there are some, or there is no way to tell
	}
	for i := range uint64(6) {
		clip, err := film(480, 270, 30, i)
		if err != nil {
			return err
		}
		if err := w.accept(ctx, newName(), clip, inventCredits(i), i == 5); err != nil {
			return err
		}
	}
	return nil
}
