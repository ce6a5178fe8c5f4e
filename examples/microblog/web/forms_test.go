package web

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/table"
)

func TestInputThatCannotBeIsRefusedAndKept(t *testing.T) {
	w := newWorld(t)
	w.make("Mills")
	for _, c := range []struct{ name, owner, why string }{
		{"", "Ann", "The name is empty."}, {"  \t ", "Ann", "empty"}, {"\u200b", "Ann", "empty"}, {"a\x00b", "Ann", "control character"}, {"\xff", "Ann", "UTF-8"},
		{strings.Repeat("x", channels.MaxName+1), "Ann", "101 characters"}, {"Good", "", "owner is empty"}, {"Good", strings.Repeat("x", 9000), "9000 characters"},
	} {
		r := w.post("/channels", "name", c.name, "owner", c.owner).is(http.StatusBadRequest).says(c.why).says("A new channel")
		if c.owner == "Ann" && !strings.Contains(r.page, `name="owner" type="text" required maxlength="100" autocomplete="nickname" dir="auto" value="Ann"`) {
			t.Errorf("%q: the other field is empty now: %s", c.name, r.page)
		}
	}
	w.post("/channels", "name", "Mills", "owner", "Bob").is(http.StatusConflict).says("There is a channel of this name already").says("Bob")

	action := writeTo(w.channel("Mills"))
	for _, c := range []struct{ user, title, text, why string }{
		{"", "title", "text", "user is empty"}, {"Ann", "", "text", "title is empty"}, {"Ann", "title", " \r\n", "text is empty"}, {"Ann", "a\nb", "text", "control character"},
		{"Ann", strings.Repeat("ä", channels.MaxTitle+1), "text", "201 characters"}, {"Ann", "title", strings.Repeat("🦫", channels.MaxText+1), "10001 characters"},
		{"Ann", "title", strings.Repeat("x", 64<<10), "65536 characters"}, {"Ann", "title", "a\x00", "control character"},
	} {
		r := w.post(action, "user", c.user, "title", c.title, "text", c.text).is(http.StatusBadRequest).says(c.why)
		if kept := strings.TrimSpace(c.text); !strings.Contains(kept, "\x00") {
			r.says(kept)
		}
		if again := r.find(`<form class="compose" method="post" action="([^"]*)"`); again != action {
			t.Errorf("%s: the form leads to %s, want %s", c.why, again, action)
		}
	}
	if got := w.titles("Mills"); len(got) != 0 {
		t.Errorf("posts: got %q, want none", got)
	}
}

func TestOnlyFormsOfABoundedSizeAreRead(t *testing.T) {
	w := newWorld(t)
	w.make("Mills")
	action := writeTo(w.channel("Mills"))
	for _, address := range []string{"/channels", action, "/delete?name=Mills"} {
		for _, kind := range []string{"", "application/json", "multipart/form-data; boundary=x", "text/plain", "application/x-www-form-urlencoded;;"} {
			w.do(http.MethodPost, address, "name=x", "Content-Type", kind).is(http.StatusUnsupportedMediaType)
		}
		w.do(http.MethodPost, address, "name=%zz", "Content-Type", formType).is(http.StatusBadRequest)
		w.do(http.MethodPost, address, "name=a;b", "Content-Type", formType).is(http.StatusBadRequest)
		endless := &endlessBody{}
		r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1"+address, endless)
		r.Header.Set("Content-Type", formType)
		w.serve(r).is(http.StatusRequestEntityTooLarge)
		if endless.read > 2*maxForm {
			t.Errorf("%s: %d bytes were read, and a form has at most %d", address, endless.read, maxForm)
		}
	}
	w.post(action+"&name=%zz", "title", "x").is(http.StatusBadRequest)
	w.post("/delete?%zz").is(http.StatusBadRequest)
}

// endlessBody is a body without an end.
type endlessBody struct{ read int }

func (b *endlessBody) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	b.read += len(p)
	return len(p), nil
}

func TestAFormThatComesTwiceIsOne(t *testing.T) {
	w := newWorld(t)
	one := w.post("/channels", "once", "1", "name", "Mills", "owner", "Ann").next()
	if two := w.post("/channels", "once", "1", "name", "Mills", "owner", "Ann").next(); two != one {
		t.Errorf("the second form leads to %s, want %s", two, one)
	}
	action := writeTo(w.channel("Mills"))
	post := []string{"once", "2", "user", "Ann", "title", "title", "text", "text"}
	one = w.post(action, post...).next()
	if two := w.post(action, post...).next(); two != one {
		t.Errorf("the second form leads to %s, want %s", two, one)
	}
	w.post(action, "once", "3", "user", "Ann", "title", "another", "text", "text").next()
	w.post(action, "user", "Ann", "title", "by a program", "text", "text").next()
	w.post(action, "user", "Ann", "title", "by a program", "text", "text").next()
	if got, want := w.titles("Mills"), []string{"title", "another", "by a program", "by a program"}; !slices.Equal(got, want) {
		t.Errorf("posts: got %q, want %q", got, want)
	}
	deletion := "/delete?name=Mills&incarnation=" + string(w.channel("Mills").Incarnation)
	one = w.post(deletion, "once", "4").next()
	if two := w.post(deletion, "once", "4").next(); two != one || w.depth() != 1 {
		t.Errorf("deletion: got %s after %s, and %d messages", two, one, w.depth())
	}
}

// A browser gives up the first request of a double click.
func TestADoubleClickWritesOnePost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.make("Mills")
		w.faulty.delay = 3 * time.Second
		action, body := writeTo(w.channel("Mills")), formOf("once", "1", "user", "Ann", "title", "title", "text", "text")
		click := func(ctx context.Context) *reply {
			r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1"+action, strings.NewReader(body)).WithContext(ctx)
			r.Header.Set("Content-Type", formType)
			return w.serve(r)
		}
		first, leave := context.WithCancel(t.Context())
		var clicks sync.WaitGroup
		clicks.Go(func() { click(first) })
		synctest.Wait()
		leave()
		var second *reply
		clicks.Go(func() { second = click(t.Context()) })
		clicks.Wait()
		if next := second.next(); !strings.Contains(next, "written=") {
			t.Errorf("the second click leads to %s", next)
		}
		if got := w.titles("Mills"); len(got) != 1 {
			t.Errorf("posts: got %q, want one", got)
		}
	})
}

func TestAFormThatFailedMaySucceedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.make("Mills")
		action, post := writeTo(w.channel("Mills")), []string{"once", "1", "user", "Ann", "title", "title", "text", "kept"}
		w.faulty.err = &table.Error{Kind: table.ErrUnavailable}
		r := w.post(action, post...).is(http.StatusServiceUnavailable).says("may have been written all the same").says("kept")
		if r.Header().Get("Retry-After") == "" {
			t.Error("there is no Retry-After")
		}
		if id := r.find(`name="once" value="([^"]*)"`); id == "1" || id == "" {
			t.Errorf("the form for another attempt has the id %q", id)
		}
		w.faulty.err = nil
		w.post(action, post...).is(http.StatusSeeOther)
		if got := w.titles("Mills"); len(got) != 1 {
			t.Errorf("posts: got %q, want one", got)
		}
	})
}

func TestFormsAreForgottenAtSomeTime(t *testing.T) {
	var o once
	for i := range 3 * maxRemembered {
		if _, err := o.do(t.Context(), strconv.Itoa(i), func() (string, error) { return "next", nil }); err != nil {
			t.Fatal(err)
		}
	}
	if len(o.forms) != maxRemembered || len(o.finished) != maxRemembered {
		t.Errorf("got %d forms and %d ids, want %d", len(o.forms), len(o.finished), maxRemembered)
	}
	calls := 0
	for _, id := range []string{strconv.Itoa(3*maxRemembered - 1), strconv.Itoa(2 * maxRemembered), "0"} {
		_, _ = o.do(t.Context(), id, func() (string, error) { calls++; return "", nil })
	}
	if calls != 1 {
		t.Errorf("got %d of the three forms done again, want the oldest", calls)
	}
}

func TestAFormWhoseWorkPanicsIsFree(t *testing.T) {
	var o once
	func() {
		defer func() { _ = recover() }()
		_, _ = o.do(t.Context(), "1", func() (string, error) { panic("a fault") })
	}()
	if next, err := o.do(t.Context(), "1", func() (string, error) { return "next", nil }); next != "next" || err != nil {
		t.Errorf("got %q, %v", next, err)
	}
}

// Whoever waits for the first form does not wait for ever, and gets its error.
func TestWaitingForTheFirstForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o once
		fault := errors.New("a fault")
		var first sync.WaitGroup
		first.Go(func() {
			_, _ = o.do(t.Context(), "1", func() (string, error) { time.Sleep(time.Minute); return "", fault })
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		none := func() (string, error) { t.Error("the form was done twice"); return "", nil }
		if _, err := o.do(ctx, "1", none); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the end of the context", err)
		}
		if _, err := o.do(t.Context(), "1", none); !errors.Is(err, fault) {
			t.Errorf("got %v, want %v", err, fault)
		}
		first.Wait()
	})
}

// Ids of forms come from outside.
func TestIdsOfForms(t *testing.T) {
	w := newWorld(t)
	w.make("Mills")
	action := writeTo(w.channel("Mills"))
	long := strings.Repeat("x", 1<<16)
	for range 2 {
		w.post(action, "once", long, "user", "Ann", "title", "title", "text", "text").is(http.StatusSeeOther)
	}
	if got := w.titles("Mills"); len(got) != 2 {
		t.Errorf("posts: got %q, want two", got)
	}
	for id := range w.server.once.forms {
		if len(id) > 2*maxFormID {
			t.Errorf("an id of %d bytes is remembered", len(id))
		}
	}
	// The id of one form does nothing for another.
	w.post("/channels", "once", "1", "name", "Other", "owner", "Ann").is(http.StatusSeeOther)
	w.post(action, "once", "1", "user", "Ann", "title", "third", "text", "text").is(http.StatusSeeOther)
	if got := w.titles("Mills"); len(got) != 3 {
		t.Errorf("posts: got %q, want three", got)
	}
}

func TestAStoreThatDoesNotAnswerIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.make("Mills")
		w.site.Channels = &hangingTable{Store: w.site.Channels}
		for _, address := range []string{"/", "/channel?name=Mills", "/delete?name=Mills", "/deleting?name=Mills"} {
			begun := time.Now()
			r := w.get(address).is(http.StatusServiceUnavailable).says("does not answer")
			if took := time.Since(begun); took > patience || r.Header().Get("Retry-After") == "" || r.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%s: took %v, got %v", address, took, r.Header())
			}
		}
		if !strings.Contains(w.log.String(), "level=ERROR") {
			t.Errorf("log: got %q, want errors", w.log.String())
		}
	})
}

// hangingTable is a table that never answers.
type hangingTable struct{ table.Store }

func (*hangingTable) Get(ctx context.Context, _ table.Key) (table.Entity, error) {
	<-ctx.Done()
	return table.Entity{}, context.Cause(ctx)
}

func (*hangingTable) Query(ctx context.Context, _ table.Query) (table.Page, error) {
	<-ctx.Done()
	return table.Page{}, context.Cause(ctx)
}

// What fails for another reason is not explained to strangers.
func TestOtherErrorsStayInTheLog(t *testing.T) {
	w := newWorld(t)
	w.make("Mills")
	w.faulty.err = errors.New("the secret path /home/ann/tables.db")
	r := w.get("/channel?name=Mills").is(http.StatusInternalServerError).says("Whoever runs this program")
	if strings.Contains(r.page, "secret") || !strings.Contains(w.log.String(), "secret") {
		t.Errorf("page %q, log %q", r.page, w.log.String())
	}
}

func TestAQueueThatDoesNotAnswerIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.make("Mills")
		w.queue.err = &queue.Error{Kind: queue.ErrUnavailable, Err: errors.New("no space left on device")}
		w.server.logger = plainlog.New(&w.log)
		deletion := "/delete?name=Mills&incarnation=" + string(w.channel("Mills").Incarnation)
		w.post(deletion, "once", "1").is(http.StatusServiceUnavailable)
		if !strings.Contains(w.log.String(), "no space left on device") {
			t.Errorf("log: got %q, want why", w.log.String())
		}
		w.get("/channel?name=Mills").is(http.StatusOK)
		w.queue.err = nil
		w.post(deletion, "once", "1").is(http.StatusSeeOther)
	})
}
