package browser

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/millrace/millrace/internal/azuritetest"
)

// patience is how long the test may take. Machines of tests are busy.
const patience = 3 * time.Minute

// find returns the path of Chromium.
func find() (string, bool) {
	if named := os.Getenv("CHROMIUM"); named != "" {
		return named, true
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, true
		}
	}
	return "", false
}

// serve starts the program, and returns where its pages are.
func serve(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "microblog")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, out)
	}
	cmd := exec.Command(program, "-addr", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "AZURE_STORAGE=")
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		if err := cmd.Wait(); err != nil || said.Len() > 0 {
			t.Errorf("the program: %v, %s", err, &said)
		}
	})
	line, err := bufio.NewReader(pipe).ReadString('\n')
	_, rest, found := strings.Cut(line, "http://")
	address, _, _ := strings.Cut(rest, "/")
	if !found {
		t.Fatalf("the program said %q, %v, %s", line, err, &said)
	}
	return "http://" + address
}

// page is a tab of the browser.
type page struct {
	t   *testing.T
	ctx context.Context
}

// open opens a tab. The test fails if a page says something in a dialog, or a script fails.
func open(t *testing.T) *page {
	t.Helper()
	chromium, found := find()
	if !found {
		if azuritetest.Required("chromium") {
			t.Fatal("this test needs Chromium: install it, or name it in CHROMIUM")
		}
		t.Skip("NOT TESTED IN A BROWSER: no Chromium here")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.ExecPath(chromium), chromedp.WSURLReadTimeout(patience))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	tab, closeTab := chromedp.NewContext(allocator)
	t.Cleanup(closeTab)
	ctx, cancel := context.WithTimeout(tab, patience)
	t.Cleanup(cancel)
	p := &page{t, ctx}
	p.do(chromedp.EmulateViewport(1100, 900))
	if err := chromedp.Listen(tab, func(event any) {
		switch e := event.(type) {
		case *cdppage.EventJavascriptDialogOpening:
			t.Errorf("a script ran: the page says %q", e.Message)
		case *runtime.EventExceptionThrown:
			t.Errorf("a script failed: %s", e.ExceptionDetails.Text)
		}
	}); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *page) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.fail("%v", err)
	}
}

// fail ends the test with what the page shows.
func (p *page) fail(format string, args ...any) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), 20*time.Second)
	defer cancel()
	shown, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + "\n" + document.body.innerText`))
	p.t.Fatalf("%s\nthe page (%v):\n%s", fmt.Sprintf(format, args...), err, shown)
}

// until waits for a condition, also while other pages are loaded.
func (p *page) until(what, condition string) {
	p.t.Helper()
	for range 200 { // navigations
		err := chromedp.Do(p.ctx, chromedp.Poll[chromedp.Void](condition, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(patience)))
		if err == nil {
			return
		}
		if p.ctx.Err() != nil {
			break
		}
		// A page that is loaded anew ends a poll. The next one waits for the new page.
		if err := chromedp.Do(p.ctx, chromedp.WaitReady(chromedp.CSS("body"))); err != nil {
			break
		}
	}
	p.fail("waited in vain until %s: %s", what, condition)
}

// click clicks what leads to another page, and waits for that.
func (p *page) click(selector string) {
	p.t.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](`document.documentElement.dataset.left = "1"`), chromedp.Click(chromedp.CSS(selector)))
	p.until("there is another page", `document.documentElement.dataset.left === undefined && document.readyState === "complete"`)
}

// fill types a text into a field, which may have characters that no keyboard has.
func (p *page) fill(selector, text string) {
	p.t.Helper()
	p.do(chromedp.SetValue(chromedp.CSS(selector), text))
}

func value[T any](p *page, js string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](js))
	if err != nil {
		p.fail("%s: %v", js, err)
	}
	return v
}

// harmless checks that a page has no script, nothing from elsewhere, and that nothing of a text has become a part of it.
func (p *page) harmless() {
	p.t.Helper()
	if hacked := value[bool](p, `"hacked" in window`); hacked {
		p.fail("a script of a text ran")
	}
	const strange = `[...document.querySelectorAll("script, iframe, object, embed, base, b, svg, img:not([src^='/static/']), link:not([href^='/static/']), form:not([action^='/'])")].map((e) => e.outerHTML)`
	if found := value[[]string](p, strange); len(found) > 0 {
		p.fail("the page has %q", found)
	}
	const handlers = `[...document.querySelectorAll("*")].flatMap((e) => [...e.attributes]).map((a) => a.name).filter((n) => n.startsWith("on") || n === "style")`
	if found := value[[]string](p, handlers); len(found) > 0 {
		p.fail("the page has attributes %q", found)
	}
	const links = `[...document.links].map((l) => l.href).filter((h) => !h.startsWith(location.origin + "/") && h !== "https://github.com/millrace/millrace")`
	if found := value[[]string](p, links); len(found) > 0 {
		p.fail("the page has links %q", found)
	}
}

// picture checks that the page is no wider than the window, also a small one, and writes screenshots if a folder for them is named.
func (p *page) picture(name string) {
	p.t.Helper()
	dir := os.Getenv("MILLRACE_SCREENSHOTS")
	for _, width := range []int64{320, 768, 1100} {
		for _, scheme := range []string{"light", "dark"} {
			_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
			if err != nil {
				p.fail("the colours: %v", err)
			}
			p.do(chromedp.EmulateViewport(width, 900))
			if over := value[float64](p, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
				p.t.Errorf("%s at %d pixels: it is %v pixels too wide", name, width, over)
			}
			if dir == "" {
				continue
			}
			shot, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
			if err != nil {
				p.fail("a screenshot: %v", err)
			}
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("microblog-%s-%d-%s.png", name, width, scheme)), shot, 0o600); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	p.do(chromedp.EmulateViewport(1100, 900))
}
