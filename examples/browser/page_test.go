package browser

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// page is a tab of the browser.
type page struct {
	t   *testing.T
	ctx context.Context
}

// newTab opens a tab. The test fails if a script of a page does, and is skipped without Chromium.
func newTab(t *testing.T, width int64) *page {
	t.Helper()
	needChromium(t)
	tab, cancelTab := chromedp.NewContext(shared.browser)
	t.Cleanup(cancelTab)
	if err := chromedp.Listen(tab, func(event any) {
		if e, ok := event.(*runtime.EventExceptionThrown); ok {
			t.Errorf("a script failed: %s %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception)
		}
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(tab, patience)
	t.Cleanup(cancel)
	p := &page{t, ctx}
	p.do(chromedp.EmulateViewport(width, 900))
	return p
}

func (p *page) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.fail("%v", err)
	}
}

// until waits for a condition, also while the page is loaded anew.
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

// fail ends the test with what the page shows.
func (p *page) fail(format string, args ...any) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), 20*time.Second)
	defer cancel()
	shown, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + "\n" + document.body.innerText`))
	p.t.Fatalf("%s\nthe page (%v):\n%s", fmt.Sprintf(format, args...), err, shown)
}

func (p *page) click(selector string) {
	p.t.Helper()
	p.do(chromedp.Click(chromedp.CSS(selector)))
}

func value[T any](p *page, js string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](js))
	if err != nil {
		p.fail("%s: %v", js, err)
	}
	return v
}
