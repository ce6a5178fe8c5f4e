package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// open opens an address of the mosaic in a new tab.
func open(t *testing.T, url string) *page {
	t.Helper()
	p := newTab(t, 1440)
	p.do(chromedp.Navigate(url))
	p.until("the scripts run", `document.documentElement.classList.contains("scripted")`)
	return p
}

const (
	state  = `document.querySelector("main").dataset.state`
	stored = `Number(document.querySelector("main").dataset.stored)`
)

// make sends the form, and waits for the page of the job.
func (p *page) make() {
	p.t.Helper()
	p.click("#go")
	p.until("the job has a page", `location.pathname.startsWith("/jobs/") && `+state+` !== undefined`)
}

// done waits until the mosaic is finished.
func (p *page) done() {
	p.t.Helper()
	p.until("the mosaic is finished", state+` === "done" && !document.getElementById("bill").hidden`)
}

// broken breaks something with the panel, and waits until the page says so.
func (p *page) broken(kind string) {
	p.t.Helper()
	p.until("the panel has figures", `document.querySelector("[data-workers] button:not(:disabled)") !== null`)
	p.click(`[data-fault=` + kind + `] button`)
	p.until(kind+" is on", `document.querySelector("[data-fault=`+kind+`] button").ariaPressed === "true"`)
}

// mended ends it.
func (p *page) mended(kind string) {
	p.t.Helper()
	p.click(`[data-fault=` + kind + `] button`)
	p.until(kind+" is off", `document.querySelector("[data-fault=`+kind+`] button").ariaPressed === "false"`)
}

// wheel turns the wheel of the mouse in the middle of the mosaic.
func (p *page) wheel(delta float64) {
	p.t.Helper()
	x, y := p.middle()
	// The browser wants both deltas, and the driver does not send zeros.
	_, err := chromedp.Call(p.ctx, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: "mouseWheel", X: x, Y: y, DeltaX: 0.01, DeltaY: delta})
	if err != nil {
		p.fail("the wheel: %v", err)
	}
}

// pinch moves two fingers apart in the middle of the mosaic.
func (p *page) pinch() {
	p.t.Helper()
	x, y := p.middle()
	first, second := 1.0, 2.0
	touch := func(kind input.DispatchTouchEventType, apart float64) {
		params := input.DispatchTouchEventParams{Type: kind, TouchPoints: []*input.TouchPoint{}}
		if apart > 0 {
			params.TouchPoints = []*input.TouchPoint{{X: x - apart, Y: y, ID: &first}, {X: x + apart, Y: y, ID: &second}}
		}
		if _, err := chromedp.Call(p.ctx, input.DispatchTouchEvent, params); err != nil {
			p.fail("fingers: %v", err)
		}
	}
	touch("touchStart", 20)
	for apart := 30.0; apart <= 100; apart += 10 {
		touch("touchMove", apart)
	}
	touch("touchEnd", 0)
}

func (p *page) middle() (x, y float64) {
	p.t.Helper()
	at := value[[]float64](p, `(() => { const v = document.getElementById("view"); v.scrollIntoView({block: "center", behavior: "instant"}); const b = v.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2] })()`)
	return at[0], at[1]
}

// picture writes a screenshot of the whole page if a folder for them is named.
func (p *page) picture(name string) {
	p.t.Helper()
	dir := os.Getenv("MILLRACE_SCREENSHOTS")
	if dir == "" {
		return
	}
	for _, width := range []int64{360, 768, 1440, 2560} {
		for _, scheme := range []string{"light", "dark"} {
			_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
			if err != nil {
				p.fail("the colours: %v", err)
			}
			p.do(chromedp.EmulateViewport(width, 900))
			p.until("the picture is drawn", `new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(() => drawn(true))))`)
			shot, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
			if err != nil {
				p.fail("a screenshot: %v", err)
			}
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, width, scheme)), shot, 0o600); err != nil {
				p.t.Fatal(err)
			}
			if over := value[float64](p, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
				p.t.Errorf("%s at %d pixels: it is %v pixels too wide", name, width, over)
			}
		}
	}
	p.do(chromedp.EmulateViewport(1440, 900))
}
