package browser

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/dom"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Scripts that describe what has the focus, and what should be able to get it.
const (
	nameOf = `const nameOf = (e) => e.id ? "#" + e.id : e.tagName.toLowerCase() + " " + (e.getAttribute("aria-label") ?? e.textContent.trim().replace(/\s+/g, " ")) + " " + (e.getAttribute("href") ?? "");`

	reachable = `(() => { ` + nameOf + `
		return [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex]")].filter((e) => !e.disabled && e.type !== "hidden" && e.checkVisibility({ visibilityProperty: true })).map(nameOf); })()`

	// A focus that nobody sees is as bad as none: it has an outline, and is on the screen.
	focused = `(() => { ` + nameOf + `
		const e = document.activeElement;
		if (!e || e === document.body) return { name: "", seen: true };
		const style = getComputedStyle(e), box = e.getBoundingClientRect();
		return { name: nameOf(e), seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth }; })()`
)

type focus struct {
	Name string `json:"name"`
	Seen bool   `json:"seen"`
}

// walk presses Tab through the whole page, and checks that each control is reached once, in the order of the page, and seen.
func (p *page) walk(what string) {
	p.t.Helper()
	p.run(`document.documentElement.style.scrollBehavior = "auto"`)
	p.press(kb.Tab) // a browser shows the focus to those who use keys
	p.do(chromedp.Focus(chromedp.CSS(".skip")))
	var got []string
	for range 100 {
		now := value[focus](p, focused)
		if now.Name == "" || len(got) > 0 && now.Name == got[0] {
			break
		}
		if !now.Seen {
			p.t.Errorf("%s: the focus on %s is not seen", what, now.Name)
		}
		got = append(got, now.Name)
		p.do(chromedp.KeyEvent(kb.Tab))
	}
	if want := value[[]string](p, reachable); !slices.Equal(got, want) {
		p.t.Errorf("%s: Tab leads to\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// tabTo presses Tab until a control has the focus.
func (p *page) tabTo(selector string) {
	p.t.Helper()
	for range 100 {
		if value[bool](p, fmt.Sprintf(`document.activeElement.matches(%q)`, selector)) {
			return
		}
		p.do(chromedp.KeyEvent(kb.Tab))
	}
	p.fail("Tab does not lead to %s", selector)
}

func (p *page) press(keys string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys))
}

// choose opens the dialog of a file field that has the focus with a key, and chooses files there.
func (p *page) choose(files ...string) {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, cdppage.SetInterceptFileChooserDialog, cdppage.SetInterceptFileChooserDialogParams{Enabled: true}); err != nil {
		p.fail("the dialog of files: %v", err)
	}
	opened := chromedp.Events(p.ctx, cdppage.FileChooserOpened)
	p.press(" ")
	for event, err := range opened {
		if err == nil {
			_, err = chromedp.Call(p.ctx, dom.SetFileInputFiles, dom.SetFileInputFilesParams{Files: files, BackendNodeID: event.BackendNodeID})
		}
		if err != nil {
			p.fail("choosing files: %v", err)
		}
		return
	}
}

// TestThePageWithoutAMouse is the whole way with the keyboard alone, as a screen reader has it.
func TestThePageWithoutAMouse(t *testing.T) {
	s := setup(t)
	p := open(t, s.url("/"))
	p.until("the figures come", `document.querySelector("[data-workers] button:not(:disabled)") !== null`)
	p.walk("the form")
	p.accessible("the form")

	file := filepath.Join(t.TempDir(), "harbour.jpg")
	photograph(t, file)
	p.tabTo("#picture")
	p.choose(file)
	p.until("the picture is chosen", `document.getElementById("shown").alt.includes("harbour.jpg")`)
	p.tabTo("#options summary")
	p.press("\r")
	p.until("the options are there", `document.getElementById("tile").checkVisibility()`)
	p.walk("the form with its options")
	p.accessible("the form with its options")

	p.until("the panel has figures", `document.querySelector("[data-workers] button:not(:disabled)") !== null`)
	p.tabTo("[data-fault=slow] button")
	p.press(" ")
	p.until("slices are slow", `document.querySelector("[data-fault=slow] button").ariaPressed === "true"`)
	p.tabTo("#tile")
	before := value[string](p, `document.getElementById("tile").value`)
	p.press(kb.ArrowDown)
	if after := value[string](p, `document.getElementById("tile").value`); after == before {
		t.Errorf("the dial: got %s before and after an arrow", after)
	}
	p.tabTo("#go")
	p.press("\r")
	p.until("slices are laid", `location.pathname.startsWith("/jobs/") && `+state+` === "working"`)
	p.run(`window.heard = []; new MutationObserver(() => heard.push(document.getElementById("say").textContent)).observe(document.getElementById("say"), { childList: true, characterData: true, subtree: true })`)
	p.accessible("a mosaic that grows")
	p.tabTo("[data-damage] button")
	p.press("\r")
	p.until("the page says so", says+`("was damaged")`)
	p.tabTo("[data-fault=slow] button")
	p.press(" ")
	p.until("the mosaic waits for a redrive", `!document.getElementById("failed").hidden`)
	p.until("there is poison", `!document.querySelector("[data-queue=slicerequest] [data-poison]").hidden`)
	p.walk("a mosaic with poison")
	p.accessible("a mosaic with poison")
	p.tabTo("[data-queue=slicerequest] [data-poison] button")
	p.press("\r")
	p.done()
	p.until("its end is said", `heard.some((text) => text.includes("is finished"))`)
	if heard := value[[]string](p, `heard`); len(heard) > 10 {
		t.Errorf("said: got %d texts for a mosaic with poison that was finished, want few: %q", len(heard), heard)
	}
	p.until("every square is there", sharp)
	p.walk("a finished mosaic")
	p.accessible("a finished mosaic")

	p.tabTo("#view")
	whole := value[float64](p, scale)
	p.press("+")
	p.until("it is larger", scale+" > "+format(whole*1.2))
	p.press(kb.ArrowRight)
	p.until("the photograph of the cell is shown", card)
	p.until("and said", `heard.some((text) => text.includes("column"))`)
	p.press(kb.Escape)
	p.until("it is hidden again", `document.getElementById("card").hidden`)
	p.tabTo("#against")
	p.press(kb.End)
	p.until("the original is shown", `document.getElementById("against").getAttribute("aria-valuetext") === "the original alone"`)
	p.tabTo("#delete")
	p.press("\r")
	p.until("a question comes", `document.querySelector(".delete button").checkVisibility()`)
	p.walk("the question")
	p.accessible("the question")
	p.tabTo(".delete button")
	p.press("\r")
	p.until("the mosaic is gone", `location.pathname === "/" && document.getElementById("make") !== null && document.querySelector(".gallery") === null`)
}
