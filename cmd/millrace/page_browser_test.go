package main

import (
	"bytes"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/azuritetest"
)

// TestPageFitsEveryWidth: Chromium lays out the page, with names as long as they can be, and nothing
// sticks out at the side. The page has no script, so it is measured from outside, in frames.
func TestPageFitsEveryWidth(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	chromium := azuritetest.Program(t, "chromium")
	v := view{Open: true, Data: "/" + strings.Repeat("directory", 10), Accounts: []accountView{{
		Name: strings.Repeat("account", 9), Connect: []string{shortForm, strings.Repeat("k", 200)},
	}}}
	for n := range maxQueues {
		name := strings.Repeat(string(rune('a'+n%26)), 63)
		v.Accounts[0].Queues = append(v.Accounts[0].Queues, queueView{name, 1_000_000_000}, queueView{fmt.Sprint("orders-", n), 1})
	}
	v.Requests = []requestsView{{"DeleteMessage", 1_000_000_000_000}}
	v.Total = 1_000_000_000_000
	var page bytes.Buffer
	if err := pageTemplate.Execute(&page, v); err != nil {
		t.Fatal(err)
	}

	var frames strings.Builder
	widths := []int{320, 390, 1280}
	for _, width := range widths {
		fmt.Fprintf(&frames, `<iframe style="width:%dpx;height:900px;border:0" srcdoc="%s"></iframe>`, width, html.EscapeString(page.String()))
	}
	const measure = `<script>onload = () => document.body.innerHTML = [...document.querySelectorAll("iframe")].map(f => {
		const d = f.contentDocument, right = d.documentElement.clientWidth;
		const out = [...d.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > right || e.scrollWidth > e.clientWidth + 1 && e.clientWidth);
		const broken = [...d.querySelectorAll(".n")].filter(e => e.getClientRects()[0].height > 40 && e.closest("tr").cells[0].innerText.length < 20);
		return "[" + f.clientWidth + " " + d.documentElement.scrollWidth + " " + out.length + " " + broken.length + "]";
	}).join("")</script>`
	wrapper := filepath.Join(t.TempDir(), "frames.html")
	if err := os.WriteFile(wrapper, []byte(`<!doctype html><meta charset="utf-8"><body>`+frames.String()+measure), 0o600); err != nil {
		t.Fatal(err)
	}
	dom, err := exec.CommandContext(t.Context(), chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
		"--user-data-dir="+t.TempDir(), "--dump-dom", "file://"+wrapper).Output()
	if err != nil {
		t.Fatalf("chromium: %v", err)
	}
	found := regexp.MustCompile(`\[(\d+) (\d+) (\d+) (\d+)\]`).FindAllStringSubmatch(string(dom), -1)
	if len(found) != len(widths) {
		t.Fatalf("measured: got %v, want %d widths", found, len(widths))
	}
	for n, width := range widths {
		if want := fmt.Sprintf("[%d %d 0 0]", width, width); found[n][0] != want {
			t.Errorf("[frame, page, elements outside, broken numbers]: got %s, want %s", found[n][0], want)
		}
	}
}
