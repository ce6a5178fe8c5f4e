package browser

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

func (p *page) run(js string) {
	p.t.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](js))
}

// first runs a script before those of each page to come.
func (p *page) first(js string) {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: js}); err != nil {
		p.fail("a script: %v", err)
	}
}

// TestSlicesThatCannotBeFetchedAreAskedForAgain is a server that is away for longer than a moment.
func TestSlicesThatCannotBeFetchedAreAskedForAgain(t *testing.T) {
	s := setup(t)
	p := open(t, s.url("/"))
	p.first(`
		const src = Object.getOwnPropertyDescriptor(HTMLImageElement.prototype, "src");
		window.away = true;
		window.asked = {};
		Object.defineProperty(HTMLImageElement.prototype, "src", { ...src, set(address) {
			const slice = address.match(/slices\/\d+/)?.[0];
			if (slice && away) {
				asked[slice] = (asked[slice] ?? 0) + 1;
				address = "/static/none";
			} else if (slice && asked[slice]) {
				this.addEventListener("load", () => (window.came = true));
			}
			src.set.call(this, address);
		} });
	`)
	p.broken("slow")
	p.make()
	p.until("a slice is asked for many times", `Object.values(asked).some((n) => n > 5)`)
	p.run(`window.away = false`)
	p.until("it comes", `window.came === true`)
	p.mended("slow")
	p.done()
}

// TestPagesThatNobodySeesHoldNoConnection: a browser has six to a server, and would load nothing more.
func TestPagesThatNobodySeesHoldNoConnection(t *testing.T) {
	s := setup(t)
	p := open(t, s.url("/"))
	p.broken("busy") // the mosaic waits until that ends
	p.make()
	p.run(`
		window.streams = [];
		window.EventSource = class extends EventSource { constructor(address) { super(address); streams.push(this); } };
		window.seen = (yes) => {
			Object.defineProperty(document, "hidden", { configurable: true, get: () => !yes });
			document.dispatchEvent(new Event("visibilitychange"));
		};
		seen(false);
		seen(true)`)
	p.until("both streams are open again", `streams.filter((s) => s.readyState === EventSource.OPEN).length === 2`)
	p.run(`seen(false)`)
	p.until("none is open", `streams.length === 2 && streams.every((s) => s.readyState === EventSource.CLOSED)`)
	p.run(`seen(true)`)
	p.mended("busy")
	p.done()
}

func TestAMosaicThatAnotherTabDeletedIsNamed(t *testing.T) {
	s := setup(t)
	p := open(t, s.url("/"))
	p.broken("busy") // the mosaic waits until that ends
	p.make()
	p.run(`void fetch(location.pathname + "/delete", { method: "POST", headers: { Accept: "application/json" } }).then((r) => (window.deleted = r.ok))`)
	p.until("it is deleted", `window.deleted === true`)
	p.run(`
		const see = (yes) => {
			Object.defineProperty(document, "hidden", { configurable: true, get: () => !yes });
			document.dispatchEvent(new Event("visibilitychange"));
		};
		see(false);
		see(true)`)
	p.until("the page says so", `document.getElementById("doing").textContent === "This mosaic was deleted."`)
}

func TestTheForm(t *testing.T) {
	s := setup(t)
	p := open(t, s.url("/"))
	t.Run("several pictures are dropped", func(t *testing.T) {
		p.t = t
		p.run(`
			window.letGo = (on, ...names) => {
				const held = new DataTransfer();
				for (const name of names) held.items.add(new File(["x"], name, { type: "image/jpeg" }));
				on.dispatchEvent(new DragEvent("drop", { dataTransfer: held, bubbles: true, cancelable: true }));
			};
			letGo(document.body, "one.jpg", "two.jpg")`)
		p.until("the first is taken", `document.getElementById("picture").files.length === 1 && document.getElementById("picture").files[0].name === "one.jpg"`)
	})
	t.Run("a name is text", func(t *testing.T) {
		p.t = t
		name := `<img src=x onerror='window.hit=1'>.jpg`
		file := filepath.Join(t.TempDir(), name)
		photograph(t, file)
		p.do(chromedp.SetUploadFiles(chromedp.CSS("#picture"), []string{file}))
		p.until("it is shown as it is", `document.getElementById("picture-name").textContent.startsWith("<img") && document.querySelectorAll(".drop img").length === 1 && window.hit === undefined`)
	})
	t.Run("durations", func(t *testing.T) {
		p.t = t
		p.until("they are written well", `import("/static/words.js").then((w) => [0.4, 1, 3.24, 9.97, 61, 89.7, 119.7, 121].map(w.seconds).join() ===
			"less than a second,1 second,3.2 seconds,10 seconds,61 seconds,1 minute 30 seconds,2 minutes 0 seconds,2 minutes 1 second")`)
	})
}

func TestWithoutJavaScript(t *testing.T) {
	s := setup(t)
	p := open(t, s.url("/"))
	if _, err := chromedp.Call(p.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	p.do(chromedp.Navigate(s.url("/")))
	p.shows("the page is there", `document.querySelector("#go") !== null && !document.documentElement.classList.contains("scripted")`)
	p.shows("the queues have figures", `document.querySelector("[data-depth]").textContent === "0" && document.querySelector("[data-figures]").textContent.includes("/s")`)
	p.run(`document.querySelector(".refresh a").click()`)
	p.shows("they can be asked for again", `document.readyState === "complete" && document.querySelectorAll("[data-workers] button").length === 2`)
	p.shows("what would not change is hidden", `getComputedStyle(document.querySelector("output")).display === "none"`)
	p.run(`document.querySelector("noscript [name=builtin]").checked = true; document.getElementById("go").click()`)
	p.shows("the job has a page", `location.pathname.startsWith("/jobs/")`)
	p.shows("the mosaic is there", `!document.getElementById("download").hidden && document.querySelectorAll(".flat img").length > 1 && [...document.querySelectorAll(".flat img")].every((i) => i.naturalWidth > 0)`)
	p.shows("its size is written well", `document.getElementById("fact-size").textContent === "2,880 × 1,920"`)
}

// shows waits for a condition of a page without scripts, which cannot wait itself.
func (p *page) shows(what, condition string) {
	p.t.Helper()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		yes, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool](condition)) // an error while the page is loaded anew
		if err == nil && yes {
			return
		}
		select {
		case <-again.C:
		case <-p.ctx.Done():
			p.fail("waited in vain until %s: %v", what, err)
		}
	}
}
