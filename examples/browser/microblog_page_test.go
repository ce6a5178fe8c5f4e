package browser

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// serveMicroblog starts the microblog, and returns where its pages are.
func serveMicroblog(t *testing.T) string {
	t.Helper()
	cmd := exec.Command(shared.microblog, "-addr", "127.0.0.1:0")
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

// blogPage is a tab with a page of the microblog.
type blogPage struct{ *page }

// openMicroblog opens a tab. The test also fails if a page says something in a dialog.
func openMicroblog(t *testing.T) *blogPage {
	t.Helper()
	p := newTab(t, 1100)
	if err := chromedp.Listen(p.ctx, func(event any) {
		if e, is := event.(*cdppage.EventJavascriptDialogOpening); is {
			t.Errorf("a script ran: the page says %q", e.Message)
		}
	}); err != nil {
		t.Fatal(err)
	}
	return &blogPage{p}
}

// click clicks what leads to another page, and waits for that.
func (p *blogPage) click(selector string) {
	p.t.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](`document.documentElement.dataset.left = "1"`), chromedp.Click(chromedp.CSS(selector)))
	p.until("there is another page", `document.documentElement.dataset.left === undefined && document.readyState === "complete"`)
}

// fill types a text into a field, which may have characters that no keyboard has.
func (p *blogPage) fill(selector, text string) {
	p.t.Helper()
	p.do(chromedp.SetValue(chromedp.CSS(selector), text))
}

// harmless checks that a page has no script, nothing from elsewhere, and that nothing of a text has become a part of it.
func (p *blogPage) harmless() {
	p.t.Helper()
	if hacked := value[bool](p.page, `"hacked" in window`); hacked {
		p.fail("a script of a text ran")
	}
	const strange = `[...document.querySelectorAll("script, iframe, object, embed, base, b, svg, img:not([src^='/static/']), link:not([href^='/static/']), form:not([action^='/'])")].map((e) => e.outerHTML)`
	if found := value[[]string](p.page, strange); len(found) > 0 {
		p.fail("the page has %q", found)
	}
	const handlers = `[...document.querySelectorAll("*")].flatMap((e) => [...e.attributes]).map((a) => a.name).filter((n) => n.startsWith("on") || n === "style")`
	if found := value[[]string](p.page, handlers); len(found) > 0 {
		p.fail("the page has attributes %q", found)
	}
	const links = `[...document.links].map((l) => l.href).filter((h) => !h.startsWith(location.origin + "/") && h !== "https://github.com/millrace/millrace")`
	if found := value[[]string](p.page, links); len(found) > 0 {
		p.fail("the page has links %q", found)
	}
}

// picture checks that the page is no wider than the window, also a small one, and writes screenshots if a folder for them is named.
func (p *blogPage) picture(name string) {
	p.t.Helper()
	dir := os.Getenv("MILLRACE_SCREENSHOTS")
	for _, width := range []int64{320, 768, 1100} {
		for _, scheme := range []string{"light", "dark"} {
			_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
			if err != nil {
				p.fail("the colours: %v", err)
			}
			p.do(chromedp.EmulateViewport(width, 900))
			if over := value[float64](p.page, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
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
