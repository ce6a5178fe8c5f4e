package web

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/examples/microblog/roles"
)

// T-14: the web role only sends the message. Readers see nothing of the channel when the worker has it.
func TestAChannelIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.make("Mills")
		for range 12 {
			w.write("Mills", "title")
		}
		ask := w.get(w.get("/channel?name=Mills").find(`id="delete" href="([^"]*)"`)).is(http.StatusOK).says("Delete “Mills”?").says("Keep it")
		if w.depth() != 0 {
			t.Fatalf("asking sent %d messages", w.depth())
		}
		next := w.post(ask.find(`method="post" action="([^"]*)"`), "once", ask.find(`name="once" value="([^"]*)"`)).next()
		waiting := w.get(next).is(http.StatusOK).says("“Mills” is being deleted").says("has not begun")
		if !strings.Contains(waiting.page, `http-equiv="refresh" content="2"`) {
			t.Errorf("the page does not look again: %s", waiting.page)
		}
		w.get("/channel?name=Mills").is(http.StatusOK).says("title")
		if w.depth() != 1 {
			t.Fatalf("messages: got %d, want 1", w.depth())
		}

		ctx, stop := context.WithCancel(t.Context())
		var worker sync.WaitGroup
		worker.Go(func() {
			if err := roles.NewWorker(w.queue, w.site, nil, nil).Run(ctx); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(5 * time.Second)
		stop()
		worker.Wait()

		gone := w.get(next).is(http.StatusOK).says("Nobody can read it any more")
		if got := gone.Header().Get("Clear-Site-Data"); got != `"cache"` || waiting.Header().Get("Clear-Site-Data") != "" {
			t.Errorf("pages of the channel stay in the browser: got %q", got)
		}
		if strings.Contains(gone.page, "http-equiv") {
			t.Errorf("the page looks again for nothing: %s", gone.page)
		}
		w.get("/channel?name=Mills").is(http.StatusNotFound)
		w.get("/delete?name=Mills").is(http.StatusNotFound)
		w.get("/").is(http.StatusOK).says("There are no channels yet")
		w.post(ask.find(`method="post" action="([^"]*)"`), "once", "another").is(http.StatusNotFound)
	})
}

// Nothing that was meant for one channel happens to another one that was made under its name.
func TestTheNextChannelOfTheNameIsAnother(t *testing.T) {
	w := newWorld(t)
	w.make("Mills")
	old := w.channel("Mills")
	action, deletion := writeTo(old), w.get("/delete?name=Mills").find(`method="post" action="([^"]*)"`)
	if err := w.site.BeginDeletion(t.Context(), old.Name, old.Incarnation); err != nil {
		t.Fatal(err)
	}
	w.post(action, "user", "Ann", "title", "title", "text", "what I wrote").is(http.StatusNotFound).says("what I wrote")
	w.make("Mills")
	refused := w.post(action, "user", "Ann", "title", "title", "text", "what I wrote").is(http.StatusConflict).says("what I wrote").says("Nothing was done")
	if strings.Contains(refused.page, "<form") {
		t.Errorf("the page offers to send it again: %s", refused.page)
	}
	w.post(deletion, "once", "1").is(http.StatusConflict)
	w.post("/delete?name=Mills", "once", "2").is(http.StatusConflict) // no incarnation
	if got := w.titles("Mills"); len(got) != 0 || w.depth() != 0 {
		t.Errorf("got posts %q and %d messages, want none", got, w.depth())
	}
	w.get("/deleting?name=Mills&incarnation=" + string(old.Incarnation)).is(http.StatusOK).says("There is a new channel of the same name")
}
