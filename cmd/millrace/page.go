package main

import (
	"bytes"
	"context"
	_ "embed"
	"html/template"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// maxQueues is the largest number of queues of an account on the page.
const maxQueues = 100

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page is the page for browsers: what the server is and, unless it is public, what it holds. It
// is read-only and safe for concurrent use. It needs no authorization: it contains no secrets,
// and shows queues neither to other machines nor to pages of other sites.
type page struct {
	settings *settings
	engine   *localqueue.Engine
	server   *emulator.Server // set before it is served
}

// ServeHTTP responds to GET and HEAD.
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/favicon.ico" {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	var document bytes.Buffer
	if err := pageTemplate.Execute(&document, p.view(r)); err != nil {
		http.Error(w, "The page could not be rendered.", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(document.Len()))
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(document.Bytes()) // the browser may have left
	}
}

// view is the content of the page.
type view struct {
	Version  string
	Data     string
	Open     bool // whether it shows data
	Accounts []accountView
	Requests []requestsView
	Total    int64
}

type accountView struct {
	Name    string
	Connect []string // connection strings; none if the key is secret
	Queues  []queueView
	More    bool // there are more than maxQueues
}

type queueView struct {
	Name  string
	Depth int64
}

type requestsView struct {
	Operation emulator.Operation
	Count     int64
}

func (p *page) view(r *http.Request) view {
	v := view{Version: version(), Open: !p.settings.public && sameMachine(r)}
	if !v.Open {
		return v
	}
	v.Data = p.settings.data
	for _, name := range p.settings.accountNames() {
		v.Accounts = append(v.Accounts, p.account(r, name))
	}
	counts := p.server.Counts()
	for _, op := range slices.Sorted(maps.Keys(counts.Operations)) {
		n := counts.Operations[op]
		v.Requests = append(v.Requests, requestsView{op, n})
		v.Total += n // with those that are no transactions
	}
	return v
}

func (p *page) account(r *http.Request, name string) accountView {
	a := accountView{Name: name}
	if !p.settings.isSecret(name) {
		scheme := "http"
		if r.TLS != nil {
			scheme = "https"
		} else if isDefaultAddress(r.Host) {
			a.Connect = append(a.Connect, shortForm)
		}
		a.Connect = append(a.Connect, connectionString(scheme+"://"+r.Host+"/"+name, name, emulator.DevelopmentKey))
	}
	a.Queues, a.More = p.queues(r.Context(), name)
	return a
}

func (p *page) queues(ctx context.Context, account string) (queues []queueView, more bool) {
	listed, next, err := p.engine.Account(account).List(ctx, "", "", maxQueues)
	if err != nil {
		return nil, false // the browser left
	}
	for _, q := range listed {
		properties, err := p.engine.Queue(queue.Name{Account: account, Queue: q.Name}).Properties(ctx)
		if err != nil {
			continue // it was deleted just now
		}
		queues = append(queues, queueView{q.Name, properties.Depth})
	}
	return queues, next != ""
}

// sameMachine reports whether a request was made on this machine to this machine. It checks the
// host too: otherwise a site whose name resolves to this machine could read the page with a
// visitor's browser (DNS rebinding).
func sameMachine(r *http.Request) bool {
	from, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil || !onLoopback(from) {
		return false
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil { // without a port
		host = strings.Trim(r.Host, "[]")
	}
	return onLoopback(host)
}
