package web

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"

	"github.com/millrace/millrace/examples/microblog/channels"
)

// files are the style, the icon and the templates of the pages.
//
//go:embed static templates
var files embed.FS

func parsePages() (*template.Template, error) {
	return template.New("").Funcs(template.FuncMap{"visible": visible, "plain": plain, "when": when, "stamp": stamp}).ParseFS(files, "templates/*.html")
}

type page struct {
	Title   string // of the window
	Refresh int    // after how many seconds the page is loaded again; 0 for never
}

// listPage is the data of list.html.
type listPage struct {
	page
	Channels []channels.Channel
	First    bool   // it is the first page
	Next     string // the address of the next page; "" if there is none
	Draft    channelDraft
}

type channelDraft struct {
	Once        string
	Name, Owner string
	Wrong       string // what is wrong with it; "" for nothing
}

// channelPage is the data of channel.html.
type channelPage struct {
	page
	Channel channels.Channel
	Posts   []channels.Post
	Written bool // the user has just written a post
	Here    bool // that post is on this page
	First   bool // it is the first page
	Next    string
	Draft   postDraft
}

type postDraft struct {
	Action            string // where it is sent
	Once              string
	User, Title, Text string
}

// draftPage is the data of draft.html: a post that could not be written, for another attempt.
type draftPage struct {
	page
	Name  string // of the channel
	Wrong string
	Gone  bool // there is no channel to write it to
	Draft postDraft
}

// questionPage is the data of delete.html.
type questionPage struct {
	page
	Channel channels.Channel
	Action  string
	Once    string
}

// deletingPage is the data of deleting.html.
type deletingPage struct {
	page
	Name  string
	Shown bool // readers still see the channel
	Anew  bool // there is a new one of this name
}

// errorPage is the data of error.html.
type errorPage struct {
	page
	Text string
	Back string // a page to go on from
}

// show writes a page. Nothing of it is kept by browsers, so that a page of a deleted channel is not shown again.
func (s *Server) show(w http.ResponseWriter, status int, name string, data any) {
	var text bytes.Buffer
	if err := s.pages.ExecuteTemplate(&text, name, data); err != nil {
		s.logger.Error("a page of the microblog could not be made", "page", name, "error", err)
		http.Error(w, "This page could not be made. Whoever runs this program finds the cause in its log.", http.StatusInternalServerError)
		return
	}
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(text.Bytes()) // nobody is left to tell
}
