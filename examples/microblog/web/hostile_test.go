package web

import (
	"html"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/examples/microblog/channels"
)

// pieces are what hostile texts consist of.
var pieces = []string{
	"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, "</title>", "</textarea>", "<!--", "]]>", "{{.}}", "javascript:alert(1)", "&lt;b&gt;", "&amp", "&#0;",
	"\u202egnp.exe", "\u2066", "\u2069", "\u200f", "\u200b", "\u3164", "\ufeff", "e\u0301\u0301\u0301\u0301", "🦫", "👩‍👩‍👧", "שלום", "ＡＢ", "\u2028",
	"../", "..", ".", "./", "/", "//evil.example", `\`, "%", "%2e%2e%2f", "%00", "%zz", "?", "&from=x", "#", ";", "+", " ", "=", "!2F", "~", "`", "$(rm)", "DROP TABLE", "'", "\"",
	"\x00", "\xff", "\xed\xa0\x80", "\n", "\r", "\r\n", "\t", "\x1b[31m", "\x7f", "\u0085", "a", "Z", "ß", strings.Repeat("long", 25),
}

// hostile draws a text.
func hostile(most int) *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.Map(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, most), func(parts []string) string { return strings.Join(parts, "") }),
		rapid.StringN(0, 20, -1),
	)
}

// shape is what pages consist of when all texts are harmless.
type shape struct{ list, channel, ask, deleting string }

func (w *world) shape(name string) shape {
	w.t.Helper()
	list := w.get("/").is(http.StatusOK)
	channel := w.get(list.find(`href="(/channel\?name=[^"]*)"`)).is(http.StatusOK)
	ask := w.get(channel.find(`id="delete" href="([^"]*)"`)).is(http.StatusOK)
	deleting := w.get(w.post(ask.find(`method="post" action="([^"]*)"`), "once", "3").next()).is(http.StatusOK)
	for _, r := range []*reply{list, channel, ask, deleting} {
		r.says(visible(name))
	}
	return shape{tags(list.page), tags(channel.page), tags(ask.page), tags(deleting.page)}
}

var harmless = func(t tester) shape {
	w := newWorld(t)
	w.make("name")
	w.write("name", "title")
	return w.shape("name")
}

// Hostile texts are refused, or are shown as text and lead to where they should: the pages consist of the same elements and
// attributes as with harmless ones.
func TestTextsAreOnlyText(t *testing.T) {
	want := harmless(t)
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		name, owner := hostile(6).Draw(t, "name"), hostile(6).Draw(t, "owner")
		user, title, text := hostile(6).Draw(t, "user"), hostile(6).Draw(t, "title"), hostile(200).Draw(t, "text")
		made := w.post("/channels", "name", name, "owner", owner)
		if made.Code == http.StatusBadRequest {
			if got, want := tags(made.page), tags(newWorld(t).post("/channels", "name", "", "owner", "").page); got != want {
				t.Fatalf("the refusal has other elements:\n%s\nwant\n%s\nin %s", got, want, made.page)
			}
			return
		}
		page := w.get(made.next()).is(http.StatusOK).says(visible(name)).says(visible(owner))
		action := page.find(`<form class="compose" method="post" action="([^"]*)"`)
		written := w.post(action, "once", "1", "user", user, "title", title, "text", text)
		if written.Code == http.StatusBadRequest {
			if got, want := tags(written.page), tags(w.post(action, "user", "", "title", "", "text", "").page); got != want {
				t.Fatalf("the refusal has other elements:\n%s\nwant\n%s\nin %s", got, want, written.page)
			}
			return
		}
		written.is(http.StatusSeeOther)
		w.get("/channel?" + regexp.MustCompile(`name=[^"&]*`).FindString(made.next())).is(http.StatusOK).says(visible(title)).says(visible(user)).says(strings.ReplaceAll(text, "\r\n", "\n"))
		if got := w.shape(name); got != want {
			t.Fatalf("the pages have other elements:\n%+v\nwant\n%+v", got, want)
		}
	})
}

// What a person meant by a name is what the site has, and each name is another channel.
func TestNamesGoThroughAddresses(t *testing.T) {
	w := newWorld(t)
	var names []string
	for _, name := range []string{
		"..", ".", "../../etc/passwd", "/", "//evil.example", `\\server\share`, "%2e%2e%2f", "%00", "%", "100%", "a+b", "a b", "a&from=x", "a#b", "a?b", "a;b", "a=b", "'", `"`, "<script>alert(1)</script>",
		"\u202eevil", "🦫", "!", "!2F", "Ann", "ann", "ä", "a\u0308", "\u3164", "-", "javascript:alert(1)",
	} {
		next := w.post("/channels", "name", name, "owner", "Ann").next()
		w.get(next).is(http.StatusOK).says(visible(name))
		if got := w.channel(name).Name; got != name {
			t.Errorf("%q: got %q", name, got)
		}
		w.write(name, "title of "+name)
		names = append(names, name)
	}
	var listed []string
	for address := "/"; address != ""; {
		r := w.get(address).is(http.StatusOK)
		for _, match := range regexp.MustCompile(`<a href="(/channel\?name=[^"]*)">`).FindAllStringSubmatch(r.page, -1) {
			page := w.get(html.UnescapeString(match[1])).is(http.StatusOK)
			listed = append(listed, strings.TrimPrefix(page.find(`<h2 dir="auto">([^<]*)`), "title of "))
		}
		address = ""
		if strings.Contains(r.page, `rel="next"`) {
			address = r.find(`rel="next" href="([^"]*)"`)
		}
	}
	slices.Sort(names)
	slices.Sort(listed)
	if !slices.Equal(listed, names) {
		t.Errorf("links lead to\n%q, want\n%q", listed, names)
	}
}

func TestTitlesOfWindowsArePlain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		got := plain(hostile(40).Draw(t, "text"))
		if got == "" || utf8.RuneCountInString(got) > maxTitle || strings.ContainsFunc(got, func(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }) {
			t.Fatalf("got %q", got)
		}
	})
}

func TestWhatCannotBeSeenIsQuoted(t *testing.T) {
	for text, want := range map[string]string{
		"a": "a", "🦫": "🦫", "-": "-", "": `""`, " ": `" "`, "\u3164": `"\u3164"`, "\u200b\u202e": `"\u200b\u202e"`, "\u2800": `"\u2800"`, "\u3164a": "\u3164a",
	} {
		if got := visible(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

// Texts that show nothing are shown quoted wherever they are.
func TestPagesQuoteWhatCannotBeSeen(t *testing.T) {
	w := newWorld(t)
	const filler, quoted = "\u3164", `"\u3164"`
	next := w.post("/channels", "name", filler, "owner", filler).next()
	w.post(writeTo(w.channel(filler)), "user", filler, "title", filler, "text", "text").is(http.StatusSeeOther)
	for address, times := range map[string]int{"/": 2, next: 5, "/delete" + strings.TrimPrefix(next, "/channel"): 1, "/deleting" + strings.TrimPrefix(next, "/channel"): 1} {
		r := w.get(address).is(http.StatusOK)
		if got := strings.Count(html.UnescapeString(r.page), quoted); got != times {
			t.Errorf("%s: got %d quoted texts, want %d: %s", address, got, times, r.page)
		}
	}
}

// The limits of the form are those of the site, or less.
func TestTheFormTakesNoMoreThanTheSite(t *testing.T) {
	w := newWorld(t)
	if got, want := w.get("/").find(`name="name" type="text" required maxlength="([0-9]+)"`), "100"; got != want || channels.MaxName != 100 {
		t.Errorf("name: got %s, want %s, the limit is %d", got, want, channels.MaxName)
	}
	w.make("Mills")
	page := w.get("/channel?name=Mills")
	if got := page.find(`name="title" type="text" required maxlength="([0-9]+)"`); got != "200" || channels.MaxTitle != 200 {
		t.Errorf("title: got %s, the limit is %d", got, channels.MaxTitle)
	}
	if got := page.find(`name="user" type="text" required maxlength="([0-9]+)"`); got != "100" {
		t.Errorf("user: got %s", got)
	}
}
