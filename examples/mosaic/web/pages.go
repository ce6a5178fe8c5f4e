package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html/template"
	"io/fs"
	"math"
	"mime"
	"net/http"
	"path"
	"strconv"

	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/examples/mosaic/tiles"
)

// chrome is what every page has.
type chrome struct {
	Title string
}

// indexPage is the data of index.html.
type indexPage struct {
	chrome
	Libraries []libraryView
	Jobs      []snapshot // the newest first
	Status    Status
	Form      form
}

// form has the bounds and defaults of the dials.
type form struct {
	MaxUpload                      int64 // bytes
	MaxPixels, MaxOutput           int
	MaxTile, DefaultTile           int
	MaxTint, DefaultReuse          int
	DefaultScale                   picture.Scale
	MaxPictures                    int
	CanKill, CanBusy, CanSlow, Own bool
}

// libraryView is a library to choose.
type libraryView struct {
	Key, Name string
	Note      string // such as "612 of 644 used"
	Uploaded  bool
}

// jobPage is the data of job.html.
type jobPage struct {
	chrome
	Job    snapshot
	Status Status
	Form   form
}

// errorPage is the data of error.html.
type errorPage struct {
	chrome
	Status int
	Text   string
}

func (s *Server) chrome(title string) chrome { return chrome{Title: title} }

// parsePages reads the templates. Each page is a file of its name, which may use all others.
func parsePages() (*template.Template, error) {
	return template.New("").Funcs(template.FuncMap{
		"bytes": bytesText,
		"count": countText,
		"queue": queueFigures,
		"fault": func(kind, label string, on bool) faultView { return faultView{kind, label, on} },
	}).ParseFS(files, "templates/*.html")
}

// figures returns the figures for a page. Without a script, people ask for those of now.
func (s *Server) figures(r *http.Request) Status {
	if r.URL.Query().Has("now") {
		return s.status.sample(r.Context())
	}
	return s.status.latest(r.Context())
}

// faultView is a switch of the panel that breaks things.
type faultView struct {
	Kind, Label string
	On          bool
}

// queueView is a queue on a page.
type queueView struct {
	QueueStatus
	Figures string // "" if they are unknown
	Most    int64  // the depth of a full bar
}

// queueFigures returns what is known of a queue.
func queueFigures(now Status, name string) queueView {
	for _, q := range now.Queues {
		if q.Name == name {
			return queueView{q, fmt.Sprintf("%s, %s, %.3g/s", plural(q.Loops, "loop"), plural(q.Handlers, "handler"), math.Round(10*q.PerSecond)/10), max(8, q.Depth)}
		}
	}
	return queueView{QueueStatus: QueueStatus{Name: name}, Most: 1}
}

func plural(n int, word string) string {
	if n != 1 {
		word += "s"
	}
	return countText(n) + " " + word
}

// Number is the number of a processor for people.
func (p ProcessorStatus) Number() int { return p.ID + 1 }

// Alive reports whether there is a process.
func (p ProcessorStatus) Alive() bool { return p.PID > 0 }

// Does says what a processor does, as the script of the page says it.
func (p ProcessorStatus) Does() string {
	if !p.Alive() {
		return "starting again"
	}
	return fmt.Sprintf("process %d, %s", p.PID, plural(int(p.Handled), "slice"))
}

// countText formats a number as the script of the page does, such as 2,880.
func countText(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// render writes a page whole, so that a template that fails does not leave half of it.
func (s *Server) render(w http.ResponseWriter, status int, name string, data any) {
	var b bytes.Buffer
	if err := s.pages.ExecuteTemplate(&b, name+".html", data); err != nil {
		s.logger.Error("a page cannot be rendered", "page", name, "error", err)
		http.Error(w, "this page cannot be shown: the program's log says why", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // nobody is left to tell
}

// Defaults of the dials.
const (
	defaultTile  = 16
	defaultReuse = int(layout.DefaultReuse)
	oneToOne     = picture.Scale(100)
)

func (s *Server) form() form {
	own := s.options.Own
	f := form{
		MaxUpload: s.limits.Upload, MaxPixels: s.limits.Pixels, MaxOutput: s.limits.Output, MaxTile: tiles.MaxSize, DefaultTile: defaultTile,
		MaxTint: layout.MaxTint, DefaultReuse: defaultReuse, DefaultScale: oneToOne, MaxPictures: s.limits.Pictures,
	}
	if own != nil {
		f.Own, f.CanBusy, f.CanSlow, f.CanKill = true, own.Busy != nil, own.Slow != nil, own.Processors != nil
	}
	return f
}

func (s *Server) index(w http.ResponseWriter, r *http.Request) error {
	page := indexPage{chrome: s.chrome("Mosaic"), Libraries: s.libraries.views(), Form: s.form(), Status: s.figures(r)}
	for _, j := range s.shelf.all() {
		snap, _ := j.look(s.options.Price)
		page.Jobs = append(page.Jobs, snap)
	}
	s.render(w, http.StatusOK, "index", page)
	return nil
}

func (s *Server) jobPage(w http.ResponseWriter, r *http.Request) error {
	j, err := s.job(r)
	if err != nil {
		return err
	}
	snap, _ := j.look(s.options.Price)
	if !wantsPage(r) && r.Header.Get("Accept") == "application/json" {
		respond(w, http.StatusOK, snap)
		return nil
	}
	s.render(w, http.StatusOK, "job", jobPage{chrome: s.chrome(snap.Name), Job: snap, Status: s.figures(r), Form: s.form()})
	return nil
}

// static serves the style and the script. They change only with the program, so a tag of their content is checked.
func (s *Server) static(w http.ResponseWriter, r *http.Request) error {
	name := "static/" + r.PathValue("file")
	if !fs.ValidPath(name) {
		return errNotFound // it leads elsewhere
	}
	content, err := fs.ReadFile(files, name)
	if err != nil {
		return errNotFound // it does not exist, or is a folder
	}
	sum := sha256.Sum256(content)
	tag := `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
	h := w.Header()
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	kind := mime.TypeByExtension(path.Ext(name))
	switch path.Ext(name) { // not those of the machine
	case ".css":
		kind = "text/css; charset=utf-8"
	case ".js":
		kind = "text/javascript; charset=utf-8"
	case ".svg":
		kind = "image/svg+xml"
	}
	h.Set("Content-Type", kind)
	_, _ = w.Write(content) // nobody is left to tell
	return nil
}
