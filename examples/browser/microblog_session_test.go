package browser

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// Texts that would do something if a page took them for more than text.
const (
	hostileName  = "</title><script>hacked=1</script>\"'><img src=x onerror=hacked=1> \u202e../%2e%2e?#&from=x"
	hostileOwner = "\u202e<svg onload=hacked=1>"
	hostileUser  = "javascript:hacked=1//<b>"
	hostileTitle = "</h2><script>alert('hacked')</script>{{.}}" + "e\u0301\u0301\u0301\u0301\u0301\u0301"
	hostileText  = "</textarea></div><iframe srcdoc='<script>parent.hacked=1</script>'></iframe>\n\n<base href=//evil.example>&lt;\u2067שלום 🦫"
)

// A person makes a channel, writes, pages through and deletes, with hostile texts everywhere: they are shown as texts, nothing
// of them runs, and nothing of the channel is shown after the deletion.
func TestASessionInTheMicroblog(t *testing.T) {
	p := openMicroblog(t)
	address := serveMicroblog(t)

	p.do(chromedp.Navigate(address + "/"))
	p.harmless()
	p.picture("list")
	p.click(`.channels li:nth-child(1) a`)
	p.picture("diary")
	p.click(`.mark`)

	p.fill("#name", hostileName)
	p.fill("#owner", hostileOwner)
	p.click(".primary")
	p.shows("h1", hostileName)
	p.harmless()

	for i := range 23 {
		p.fill("#title", fmt.Sprint(hostileTitle, i))
		p.fill("#text", hostileText)
		p.fill("#user", hostileUser)
		p.click(".primary")
		p.harmless()
	}
	p.shows("#written", "Your post is written. The oldest ones come first, so it is on the last page.")
	p.shows(".text", hostileText)
	p.shows(".posts .soft bdi", hostileUser)
	p.picture("hostile")

	// Page by page: each post once, in order.
	p.click(`.mark`)
	p.harmless()
	p.shows(".channels li:nth-child(1) a", hostileName)
	p.click(`.channels li:nth-child(1) a`)
	var titles []string
	for {
		p.shows("h1", hostileName)
		titles = append(titles, value[[]string](p.page, `[...document.querySelectorAll("article h2")].map((h) => h.textContent)`)...)
		if !value[bool](p.page, `document.querySelector("a[rel=next]") !== null`) {
			break
		}
		p.click("a[rel=next]")
		p.harmless()
	}
	var want []string
	for i := range 23 {
		want = append(want, hostileTitle+strconv.Itoa(i))
	}
	if !slices.Equal(titles, want) {
		p.fail("titles: got %q, want %q", titles, want)
	}
	last := value[string](p.page, `location.href`)

	// What cannot be is refused, and what was written is still there.
	p.fill("#title", "x")
	p.fill("#text", strings.Repeat("long ", 3000))
	p.fill("#user", hostileUser)
	p.click(".primary")
	p.shows(".note", "The text has 15000 characters, and may have 10000.")
	if got := value[string](p.page, `document.querySelector("#user").value`); got != hostileUser {
		p.fail("the field has %q, want %q", got, hostileUser)
	}
	p.picture("refused")

	// Even a script that got into a page would not run.
	p.do(chromedp.Evaluate[chromedp.Void](`{ const s = document.createElement("script"); s.textContent = "hacked = 1"; document.body.append(s); s.remove(); }`))
	p.harmless()

	p.do(chromedp.Navigate(last))
	p.click("#delete")
	p.harmless()
	p.shows("h1", "Delete “"+hostileName+"”?")
	p.picture("question")
	p.click(".primary")
	p.harmless()
	p.until("the worker has marked the channel", `document.querySelector(".lede").textContent.startsWith("Nobody can read it any more")`)
	p.shows("h1", "“"+hostileName+"” is being deleted")
	p.picture("deleting")

	// Neither a link that was kept nor the way back shows it: browsers keep pages in memory to go back to.
	p.do(chromedp.Navigate(last))
	p.do(chromedp.Evaluate[chromedp.Void](`history.go(-3)`)) // past the deletion and the question
	p.until("the channel is asked for again", `document.querySelector("#delete, article") === null && location.href === `+strconv.Quote(last))
	p.shows(".lede", "There is no channel of this name, or it is being deleted.")
	p.do(chromedp.Navigate(last))
	p.shows(".lede", "There is no channel of this name, or it is being deleted.")
	p.picture("gone")
	p.do(chromedp.Navigate(address + "/"))
	if got := value[[]string](p.page, `[...document.querySelectorAll(".channels a")].map((a) => a.textContent)`); len(got) != 2 {
		p.fail("channels: got %q, want the two samples", got)
	}
}

// shows checks the text of the first element.
func (p *blogPage) shows(selector, text string) {
	p.t.Helper()
	if got := value[string](p.page, `document.querySelector(`+strconv.Quote(selector)+`).textContent`); got != text {
		p.fail("%s: got %q, want %q", selector, got, text)
	}
}
