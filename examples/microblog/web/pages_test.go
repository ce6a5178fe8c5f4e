package web

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/table"
)

func TestAChannelIsMadeWrittenToAndRead(t *testing.T) {
	w := newWorld(t)
	first := w.get("/").is(http.StatusOK).says("There are no channels yet")
	next := w.post(first.find(`<form class="compose" method="post" action="([^"]*)"`), "once", first.find(`name="once" value="([^"]*)"`), "name", "Mills", "owner", "Ann").next()
	page := w.get(next).is(http.StatusOK).says("Mills").says("Nobody has written here yet")
	next = w.post(page.find(`<form class="compose" method="post" action="([^"]*)"`), "once", page.find(`name="once" value="([^"]*)"`), "user", "Tom", "title", "The race", "text", "It is\r\nfull.").next()
	page = w.get(strings.TrimSuffix(next, "#written")).is(http.StatusOK).says("Your post is written.").says("The race").says("Tom").says("It is\nfull.")
	if strings.Contains(page.page, "on the last page") {
		t.Error("the page says that the post is elsewhere")
	}
	if list := w.get("/").is(http.StatusOK); list.find(`href="(/channel\?name=[^"]*)"`) != "/channel?name=Mills" {
		t.Errorf("the list does not lead to the channel: %s", list.page)
	}
}

// T-07: each post is on one page, in the order of writing, and the last page has no next one.
func TestAChannelIsReadPageByPage(t *testing.T) {
	for _, n := range []int{0, 1, 4, 5, 6, 10, 23} {
		w := newWorld(t)
		w.make("Mills")
		var want, got []string
		for i := range n {
			title := fmt.Sprintf("title %02d", i)
			w.write("Mills", title)
			want = append(want, title)
		}
		address, pages := "/channel?name=Mills", 0
		for address != "" {
			r := w.get(address).is(http.StatusOK)
			for rest := r.page; ; {
				_, after, found := strings.Cut(rest, `<h2 dir="auto">`)
				if !found {
					break
				}
				title, _, _ := strings.Cut(after, "<")
				got, rest = append(got, title), after
			}
			address = ""
			if strings.Contains(r.page, `rel="next"`) {
				address = r.find(`rel="next" href="([^"]*)"`)
			}
			pages++
		}
		if !slices.Equal(got, want) || pages != max(1, (n+4)/5) {
			t.Errorf("%d posts: got %q on %d pages", n, got, pages)
		}
	}
}

func TestTheListHasPages(t *testing.T) {
	w := newWorld(t)
	for i := range 7 {
		w.make(fmt.Sprintf("channel %d", i))
	}
	first := w.get("/").is(http.StatusOK).says("channel 4")
	second := w.get(first.find(`rel="next" href="([^"]*)"`)).is(http.StatusOK).says("channel 5").says("channel 6").says("First page")
	if strings.Contains(second.page, `rel="next"`) || strings.Contains(second.page, "channel 4") {
		t.Errorf("second page: %s", second.page)
	}
}

// A post that is not on the first page is said to be on another one.
func TestAfterWritingThePageSaysWhereThePostIs(t *testing.T) {
	w := newWorld(t)
	w.make("Mills")
	for range 5 {
		w.write("Mills", "before")
	}
	next := w.post(writeTo(w.channel("Mills")), "user", "Tom", "title", "late", "text", "text").next()
	w.get(strings.TrimSuffix(next, "#written")).is(http.StatusOK).says("it is on the last page")
}

// T-08: a page may be empty and have a token all the same.
func TestEmptyPagesAreReadPast(t *testing.T) {
	reads := 0
	found, next, err := pageWithContent("a", func(from table.Token) ([]int, table.Token, error) {
		if reads++; reads < 4 {
			return nil, from + "a", nil
		}
		return []int{1}, "end", nil
	})
	if len(found) != 1 || next != "end" || err != nil || reads != 4 {
		t.Errorf("got %v, %v, %v after %d reads", found, next, err, reads)
	}
	reads = 0
	found, next, err = pageWithContent("a", func(table.Token) ([]int, table.Token, error) { reads++; return nil, "on", nil })
	if len(found) != 0 || next != "on" || err != nil || reads != maxEmpty {
		t.Errorf("without an end: got %v, %v, %v after %d reads, want %d", found, next, err, reads, maxEmpty)
	}
}

func TestAddressesThatMakeNoSense(t *testing.T) {
	w := newWorld(t)
	w.make("Mills")
	w.make("Other")
	for range 6 {
		w.write("Mills", "title")
		w.write("Other", "title")
	}
	elsewhere := w.get("/channel?name=Other").find(`rel="next" href="[^"]*from=([^&"]*)`)
	for _, token := range []string{"x", "%00", "../../etc/passwd", "<script>", elsewhere, strings.Repeat("A", 20_000), "ä", "%2e%2e", string(table.TokenFor(table.Key{Partition: "zzz", Row: "1"}))} {
		address := "/channel?name=Mills&from=" + url.QueryEscape(token)
		w.get(address).is(http.StatusBadRequest).says("Begin at the first one")
	}
	for _, token := range []string{"x", "\x00", "../", strings.Repeat("A", 20_000)} {
		w.get("/?from=" + url.QueryEscape(token)).is(http.StatusBadRequest)
	}
	for address, status := range map[string]int{
		"/channel":                          http.StatusBadRequest, // no name
		"/channel?name=":                    http.StatusBadRequest,
		"/channel?name=%ff":                 http.StatusBadRequest,
		"/channel?name=a%00b":               http.StatusBadRequest,
		"/channel?name=%zz":                 http.StatusBadRequest,
		"/channel?name=a;b":                 http.StatusBadRequest,
		"/channel?name=nobody":              http.StatusNotFound,
		"/channel?name=mills":               http.StatusNotFound, // another one
		"/channel?name=Mills%20":            http.StatusNotFound,
		"/delete?name=nobody":               http.StatusNotFound,
		"/delete":                           http.StatusBadRequest,
		"/deleting?name=%ff":                http.StatusBadRequest,
		"/nothing":                          http.StatusNotFound,
		"/static/":                          http.StatusNotFound,
		"/static/style.js":                  http.StatusNotFound,
		"/static/..%2ftemplates%2ferr.html": http.StatusNotFound,
		"/channel/Mills":                    http.StatusNotFound,
		"/?x=" + strings.Repeat("y", 9999):  http.StatusOK,
	} {
		r := w.get(address).is(status)
		if status != http.StatusOK && (!strings.Contains(r.page, "<h1>That did not work</h1>") || !strings.Contains(r.page, `href="/"`)) {
			t.Errorf("%s: got %s, want a page that leads on", address, r.page)
		}
	}
	for _, c := range [][2]string{{"PUT", "/"}, {"POST", "/"}, {"GET", "/channels"}, {"DELETE", "/channel?name=Mills"}, {"POST", "/deleting"}, {"POST", "/static/style.css"}} {
		r := w.do(c[0], c[1], "").is(http.StatusMethodNotAllowed)
		if allow := r.Header().Get("Allow"); allow == "" || strings.Contains(allow, c[0]) {
			t.Errorf("%s %s: got Allow %q", c[0], c[1], allow)
		}
	}
}

func TestHeadHasNoBodyOfItsOwn(t *testing.T) {
	w := newWorld(t)
	server := httptest.NewServer(w.server)
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodHead, server.URL+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || response.ContentLength <= 0 {
		t.Errorf("got %d with length %d", response.StatusCode, response.ContentLength)
	}
}

func TestStaticFiles(t *testing.T) {
	w := newWorld(t)
	for name, kind := range map[string]string{"style.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml"} {
		r := w.get("/static/" + name).is(http.StatusOK)
		if r.Header().Get("Content-Type") != kind || r.Header().Get("ETag") == "" || r.page == "" {
			t.Errorf("%s: got %v", name, r.Header())
		}
		w.do(http.MethodGet, "/static/"+name, "", "If-None-Match", r.Header().Get("ETag")).is(http.StatusNotModified)
	}
}

// Everything that the pages refer to is there.
func TestPagesReferToWhatThereIs(t *testing.T) {
	w := newWorld(t)
	w.make("Mills")
	for range 6 {
		w.write("Mills", "title")
	}
	for _, page := range []string{"/", "/channel?name=Mills", "/delete?name=Mills", "/deleting?name=Mills&incarnation=x", "/nothing"} {
		rest := w.get(page).page
		for {
			_, after, found := strings.Cut(rest, `href="/`)
			if !found {
				break
			}
			address, _, _ := strings.Cut(after, `"`)
			rest = after
			w.get("/" + strings.ReplaceAll(address, "&amp;", "&")).is(http.StatusOK)
		}
	}
}
