package report

import (
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/azuritetest"
)

// TestThePageFitsEveryWidth opens it in Chromium: nothing sticks out at the side, with names that cannot
// be broken, and the page is not empty. If MILLRACE_SCREENSHOTS names a folder, pictures of it are left there.
func TestThePageFitsEveryWidth(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		if azuritetest.Required("chromium") {
			t.Fatal(err)
		}
		t.Skipf("NOT LOOKED AT IN CHROMIUM: %v", err)
	}
	b, folder := newBooks(t), t.TempDir()
	aMonth(t, b)
	s, err := Write(t.Context(), b, folder, &Options{SLA: 5 * time.Second, Requests: &Requests{Queue: 1320, Blobs: 3500}})
	page := written(t, folder, s, err)

	// The page has no script, so it is measured from outside, in frames of exact widths.
	var frames strings.Builder
	widths := []int{320, 360, 768, 1024, 1440, 2560}
	for _, width := range widths {
		fmt.Fprintf(&frames, `<iframe style="width:%dpx;height:900px;border:0" srcdoc="%s"></iframe>`, width, html.EscapeString(page))
	}
	measure := `<script>onload = () => document.body.innerHTML = [...document.querySelectorAll("iframe")].map(f => {
		const d = f.contentDocument, out = [...d.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > d.documentElement.clientWidth + 1 && !e.closest(".unseen, .scroll"));
		return "[" + f.clientWidth + " " + d.documentElement.scrollWidth + " " + d.body.innerText.length + " " + out.slice(0, 3).map(e => e.tagName + "." + e.getAttribute("class")).join(",") + "]";
	}).join("")</script>`
	wrapper := filepath.Join(folder, "frames.html")
	if err := os.WriteFile(wrapper, []byte(`<!doctype html><meta charset="utf-8"><body>`+frames.String()+measure), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		args = append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--user-data-dir=" + t.TempDir()}, args...)
		out, err := exec.CommandContext(t.Context(), chromium, args...).Output()
		if err != nil {
			t.Fatalf("chromium %v: %v", args, err)
		}
		return string(out)
	}
	found := regexp.MustCompile(`\[(\d+) (\d+) (\d+) ([^\]]*)\]`).FindAllStringSubmatch(run("--dump-dom", "file://"+wrapper), -1)
	if len(found) != len(widths) {
		t.Fatalf("measured %v, want %d widths", found, len(widths))
	}
	for n, one := range found {
		if one[1] != fmt.Sprint(widths[n]) || one[2] != one[1] || one[4] != "" {
			t.Errorf("in %s pixels the page is %s wide; outside: %s", one[1], one[2], one[4])
		}
		if len(one[3]) < 4 { // a thousand characters
			t.Errorf("the page has only %s characters", one[3])
		}
	}
	shots := os.Getenv("MILLRACE_SCREENSHOTS")
	if shots == "" {
		return
	}
	for _, width := range []int{360, 768, 1440} {
		for scheme, number := range map[string]int{"dark": 0, "light": 1} {
			run(fmt.Sprintf("--window-size=%d,4000", width), fmt.Sprintf("--blink-settings=preferredColorScheme=%d", number),
				fmt.Sprintf("--screenshot=%s", filepath.Join(shots, fmt.Sprintf("billing-%d-%s.png", width, scheme))), "file://"+s.Path)
		}
	}
	run("--print-to-pdf="+filepath.Join(shots, "billing.pdf"), "--no-pdf-header-footer", "file://"+s.Path)
}
