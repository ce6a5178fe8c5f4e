package browser

import (
	"bytes"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

const (
	scale = `Number(document.getElementById("view").dataset.scale)`
	left  = `Number(document.getElementById("view").dataset.x)`
	card  = `!document.getElementById("card").hidden && document.querySelector("#card p").textContent !== "" && document.querySelector("#card img").naturalWidth > 0`
	drawn = `document.querySelector("#view canvas").toDataURL()`
	rests = `document.getElementById("view").dataset.rests === "true"`
	sharp = `document.getElementById("view").dataset.missing === "0"`
)

// TestTheFirstClickMakesAMosaicToExplore is the whole way of a newcomer.
func TestTheFirstClickMakesAMosaicToExplore(t *testing.T) {
	s := setup(t)
	p := open(t, s.url("/"))
	p.until("the figures come", `document.querySelector("[data-depth]").textContent === "0"`)
	p.picture("start")
	p.make()
	p.until("it says what it does", `document.getElementById("doing").textContent !== ""`)
	p.done()
	p.until("every square is there", sharp)
	p.picture("mosaic")

	t.Run("keys", func(t *testing.T) {
		p.t = t
		before := value[float64](p, scale)
		p.do(chromedp.Focus(chromedp.CSS("#view")), chromedp.KeyEvent("+"), chromedp.KeyEvent("+"))
		p.until("it is larger", scale+" > "+format(before*1.5)+" && "+sharp)
		p.until("nothing moves", rests)
		place := value[float64](p, left)
		p.do(chromedp.KeyEvent(kb.ArrowRight))
		p.until("it has moved", left+" < "+format(place))
		p.until("the photograph of the cell is shown", card)
		p.do(chromedp.KeyEvent("-"), chromedp.KeyEvent("0"))
		p.until("it is whole again", scale+" <= "+format(before*1.001))
	})
	t.Run("the buttons keep the focus", func(t *testing.T) {
		p.t = t
		p.do(chromedp.Focus(chromedp.CSS("[data-zoom=in]")), chromedp.KeyEvent("\r"))
		p.do(chromedp.Focus(chromedp.CSS("[data-zoom=fit]")), chromedp.KeyEvent("\r"))
		p.until("the picture is whole", `document.querySelector("[data-zoom=fit]").ariaDisabled === "true"`)
		p.until("the focus stays", `document.activeElement === document.querySelector("[data-zoom=fit]") && `+rests)
	})
	t.Run("pointer", func(t *testing.T) {
		p.t = t
		before := value[float64](p, scale)
		p.wheel(-400)
		p.until("the wheel zooms", scale+" > "+format(before*1.2))
		x, y := p.middle()
		p.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x+40, y+30))
		p.until("the photograph under the pointer is shown, and nothing moves", card+" && "+rests)
		place := value[float64](p, left)
		p.do(chromedp.DragAndDropXY(x, y, x-120, y-20))
		p.until("dragging moves", left+" < "+format(place))
		p.click("[data-zoom=fit]")
		p.until("the button shows the whole", scale+" <= "+format(before*1.001))
		p.do(chromedp.EmulateViewport(1440, 900, chromedp.EmulateTouch))
		p.pinch()
		p.until("two fingers zoom", scale+" > "+format(before*1.5))
		p.do(chromedp.EmulateViewport(1440, 900))
		p.click("[data-zoom=fit]")
		p.until("it is whole again", scale+" <= "+format(before*1.001)+" && "+sharp)
	})
	t.Run("compare", func(t *testing.T) {
		p.t = t
		p.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, 1, 1)) // no cell is marked
		p.until("nothing moves or is marked", `document.getElementById("card").hidden && `+rests+" && "+sharp)
		p.do(chromedp.Evaluate[chromedp.Void](`window.mosaic = ` + drawn))
		p.do(chromedp.Focus(chromedp.CSS("#against")), chromedp.KeyEvent(kb.End))
		p.until("the original is shown", drawn+` !== window.mosaic && document.getElementById("against").getAttribute("aria-valuetext") === "the original alone"`)
		p.do(chromedp.KeyEvent(kb.Home))
		p.until("the mosaic is shown again", drawn+` === window.mosaic`)
	})
	t.Run("download", func(t *testing.T) {
		p.t = t
		download(p)
	})
}

// download saves the mosaic, and compares its size with what the page says.
func download(p *page) {
	p.t.Helper()
	dir := p.t.TempDir()
	events := true
	_, err := chromedp.CallBrowser(p.ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{Behavior: browser.SetDownloadBehaviorBehaviorAllowAndName, DownloadPath: dir, EventsEnabled: &events})
	if err != nil {
		p.fail("downloads: %v", err)
	}
	progress := chromedp.BrowserEvents(p.ctx, browser.DownloadProgress)
	p.click("#download")
	for event, err := range progress {
		if err != nil {
			p.fail("the download: %v", err)
		}
		if event.State == browser.DownloadProgressStateInProgress {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, event.GUID))
		if err != nil {
			p.fail("the download has ended as %s: %v", event.State, err)
		}
		c, err := png.DecodeConfig(bytes.NewReader(text))
		if err != nil || c.Width != 2880 || c.Height != 1920 {
			p.t.Errorf("the mosaic: got %d×%d, %v, want 2880×1920", c.Width, c.Height, err)
		}
		return
	}
}

func TestAPictureOfOnesOwnAfterABrokenOne(t *testing.T) {
	s := setup(t)
	dir := t.TempDir()
	good, broken := filepath.Join(dir, "harbour.jpg"), filepath.Join(dir, "broken.jpg")
	photograph(t, good)
	text, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(broken, text[:len(text)/9], 0o600); err != nil {
		t.Fatal(err)
	}
	p := open(t, s.url("/"))
	p.do(chromedp.SetUploadFiles(chromedp.CSS("#picture"), []string{broken}))
	p.click("#go")
	p.until("the page says what is wrong", `!document.getElementById("refused").hidden && document.getElementById("refused").textContent.length > 10`)
	if at := value[string](p, `location.pathname`); at != "/" {
		t.Errorf("after a broken picture: got the page %s, want the form", at)
	}
	p.until("it can be tried again", `!document.getElementById("go").disabled`)
	p.do(chromedp.SetUploadFiles(chromedp.CSS("#picture"), []string{good}))
	p.until("the picture is shown", `document.getElementById("shown").src.startsWith("blob:") && document.getElementById("shown").alt.includes("harbour.jpg")`)
	p.make()
	if name := value[string](p, `document.querySelector("h1").textContent`); name != "harbour.jpg" {
		t.Errorf("title: got %q, want harbour.jpg", name)
	}
	p.done()
}

// photograph writes a picture with shapes.
func photograph(t *testing.T, name string) {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, 640, 400))
	for y := range 400 {
		for x := range 640 {
			img.Set(x, y, color.RGBA{uint8(x / 3), uint8(y / 2), uint8((x*x + y*y) / 999), 255})
		}
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, img, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTwoMosaicsAtOnce(t *testing.T) {
	s := setup(t)
	one, two := open(t, s.url("/")), open(t, s.url("/"))
	one.make()
	two.make()
	one.done()
	two.done()
	one.do(chromedp.Navigate(s.url("/")))
	one.until("the gallery is there", `document.querySelector(".gallery") !== null`)
	one.do(chromedp.ScrollIntoView(chromedp.CSS(".gallery li:last-child")))
	one.until("both are in the gallery", `document.querySelectorAll("[data-thumbnail] canvas").length === 2`)
	one.accessible("the gallery")
}
