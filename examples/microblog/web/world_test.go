package web

import (
	"context"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/examples/microblog/roles"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/table"
)

// tester is what testing.T and rapid.T have in common.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Context() context.Context
}

// world is a microblog in memory, and a browser.
type world struct {
	t      tester
	site   *channels.Site
	faulty *faultyTable // the table of posts
	queue  *faultyQueue
	server *Server
	log    strings.Builder
}

func newWorld(t tester) *world {
	t.Helper()
	w := &world{t: t, faulty: &faultyTable{Store: table.Memory("Blogs")}}
	w.site = &channels.Site{Channels: table.Memory("Channels"), Posts: w.faulty}
	w.queue = &faultyQueue{Queue: must(localqueue.New(nil)).Queue(queue.Name{Account: "a", Queue: roles.QueueName})}
	var err error
	w.server, err = New(w.site, roles.NewRequester(w.queue, nil), &Options{Top: 5, Logger: slog.New(slog.NewTextHandler(&w.log, nil))})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return w
}

// faultyTable is a table that fails or is slow when it is told to be.
type faultyTable struct {
	table.Store
	err   error         // of all calls
	delay time.Duration // of inserts
}

func (f *faultyTable) Insert(ctx context.Context, e table.Entity) (table.ETag, error) {
	time.Sleep(f.delay)
	if f.err != nil {
		return "", f.err
	}
	return f.Store.Insert(ctx, e)
}

func (f *faultyTable) Query(ctx context.Context, q table.Query) (table.Page, error) {
	if f.err != nil {
		return table.Page{}, f.err
	}
	return f.Store.Query(ctx, q)
}

// faultyQueue is a queue that takes no messages when it is told so.
type faultyQueue struct {
	queue.Queue
	err error
}

func (f *faultyQueue) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	if f.err != nil {
		return queue.Message{}, f.err
	}
	return f.Queue.Enqueue(ctx, text, o)
}

// depth returns how many deletions are asked for.
func (w *world) depth() int64 {
	w.t.Helper()
	p, err := w.queue.Properties(w.t.Context())
	if err != nil {
		return 0 // there is no queue yet
	}
	return p.Depth
}

// do sends a request with headers given as name and value in turn.
func (w *world) do(method, address, body string, header ...string) *reply {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, "http://127.0.0.1:8090"+address, strings.NewReader(body))
	if err != nil {
		w.t.Fatalf("%s: %v", address, err)
	}
	r.RequestURI = address
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Set(header[i], header[i+1])
	}
	return w.serve(r)
}

func (w *world) serve(r *http.Request) *reply {
	recorder := httptest.NewRecorder()
	w.server.ServeHTTP(recorder, r)
	return &reply{w: w, ResponseRecorder: recorder, page: recorder.Body.String()}
}

func (w *world) get(address string) *reply {
	w.t.Helper()
	return w.do(http.MethodGet, address, "")
}

const formType = "application/x-www-form-urlencoded"

// post sends a form with fields given as name and value in turn.
func (w *world) post(address string, fields ...string) *reply {
	w.t.Helper()
	return w.do(http.MethodPost, address, formOf(fields...), "Content-Type", formType)
}

func formOf(fields ...string) string {
	values := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		values.Set(fields[i], fields[i+1])
	}
	return values.Encode()
}

// make makes a channel by the page.
func (w *world) make(name string) {
	w.t.Helper()
	w.post("/channels", "name", name, "owner", "Ann").is(http.StatusSeeOther)
}

// channel returns a channel of the site.
func (w *world) channel(name string) channels.Channel {
	w.t.Helper()
	c, err := w.site.Channel(w.t.Context(), name)
	if err != nil {
		w.t.Fatalf("channel %q: %v", name, err)
	}
	return c
}

// write writes a post without the page.
func (w *world) write(name, title string) {
	w.t.Helper()
	if _, err := w.site.Write(w.t.Context(), w.channel(name), "Ann", title, "text"); err != nil {
		w.t.Fatalf("write: %v", err)
	}
}

// titles returns the titles of a channel's posts, in order.
func (w *world) titles(name string) (titles []string) {
	w.t.Helper()
	for token, first := table.Token(""), true; first || token != ""; first = false {
		_, posts, next, err := w.site.Page(w.t.Context(), name, token, 1000)
		if err != nil {
			w.t.Fatalf("page of %q: %v", name, err)
		}
		for _, b := range posts {
			titles = append(titles, b.Title)
		}
		token = next
	}
	return titles
}

// reply is an answer of the server.
type reply struct {
	*httptest.ResponseRecorder
	w    *world
	page string
}

// is fails the test unless the status is the wanted one.
func (r *reply) is(status int) *reply {
	r.w.t.Helper()
	if r.Code != status {
		r.w.t.Fatalf("got status %d, want %d: %s", r.Code, status, r.page)
	}
	return r
}

// next returns the address to which a form leads.
func (r *reply) next() string {
	r.w.t.Helper()
	r.is(http.StatusSeeOther)
	return r.Header().Get("Location")
}

// says fails the test unless the page has a text as a reader sees it, or the value of a field.
func (r *reply) says(text string) *reply {
	r.w.t.Helper()
	seen := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(r.page, "")
	if !strings.Contains(html.UnescapeString(seen), text) && !strings.Contains(html.UnescapeString(r.page), text) {
		r.w.t.Errorf("the page does not say %q: %s", text, r.page)
	}
	return r
}

// find returns what the pattern's parentheses match, without HTML's escapes.
func (r *reply) find(pattern string) string {
	r.w.t.Helper()
	match := regexp.MustCompile(pattern).FindStringSubmatch(r.page)
	if match == nil {
		r.w.t.Fatalf("the page does not have %s: %s", pattern, r.page)
	}
	return html.UnescapeString(match[1])
}

// tags returns the names of the elements that begin, and their attributes, in order: what a page consists of besides texts.
func tags(page string) string {
	var all []string
	for _, tag := range regexp.MustCompile(`<[a-zA-Z/!][^>]*>`).FindAllString(page, -1) {
		name := regexp.MustCompile(`^</?[!a-zA-Z0-9]+`).FindString(tag)
		attributes := regexp.MustCompile(`\s([^\s="]+)(?:="[^"]*")?`).FindAllStringSubmatch(tag, -1) // with the value, which may look like an attribute
		for _, a := range attributes {
			name += " " + a[1]
		}
		all = append(all, name)
	}
	return fmt.Sprint(all)
}
