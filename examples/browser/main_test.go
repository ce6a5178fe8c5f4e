package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/millrace/millrace/internal/azuritetest"
)

// patience is how long anything may take. Machines of tests are busy.
const patience = 3 * time.Minute

// shared is what the tests of this binary have in common: the programs and the browser.
var shared struct {
	mosaic, microblog string // paths of the programs
	browser           context.Context
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	chromium, ok := find()
	if !ok {
		return m.Run() // needChromium skips or fails each test
	}
	dir, err := os.MkdirTemp("", "browser")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary folder
	shared.mosaic, shared.microblog = filepath.Join(dir, "mosaic"), filepath.Join(dir, "microblog")
	build := exec.Command("go", "build", "-o", dir, "./mosaic", "./microblog")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the programs: %v\n%s", err, out)
		return 1
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.ExecPath(chromium), chromedp.WSURLReadTimeout(patience))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	browser, stopBrowser := chromedp.NewContext(allocator)
	defer stopBrowser()
	if err := chromedp.Do(browser, chromedp.Navigate("about:blank")); err != nil {
		fmt.Fprintf(os.Stderr, "starting Chromium: %v\n", err)
		return 1
	}
	shared.browser = browser
	return m.Run()
}

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

// needChromium skips the test without Chromium, unless it is required.
func needChromium(t *testing.T) {
	t.Helper()
	if shared.browser != nil {
		return
	}
	if azuritetest.Required("chromium") {
		t.Fatal("this test needs Chromium: install it, or name it in CHROMIUM")
	}
	t.Skip("NOT TESTED IN A BROWSER: no Chromium here")
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
