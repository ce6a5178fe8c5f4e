package queuetest

import (
	"maps"
	"strings"

	"github.com/millrace/millrace/queue"
)

// awkward are texts that a faulty XML round trip would change.
var awkward = map[string]string{
	"empty":             "",
	"blank":             " ",
	"blanks around":     "  a  ",
	"tabs and newlines": "\ta\nb\n",
	"carriage returns":  "a\rb\r\nc\r",
	"only newlines":     "\n\n",
	"quotes":            `{"a":"b",'c':'d'}`,
	"markup":            "<QueueMessage><MessageText>x</MessageText></QueueMessage>",
	"entities":          "&amp;&lt;&#65;&#x41;&nosuch;&",
	"end of CDATA":      "<![CDATA[x]]>]]>",
	"comment":           "<!-- x --><?xml version=\"1.0\"?>",
	"emoji":             "héllo 世界 🚀 \U0001F468\u200D\U0001F469",
	"edges of XML":      "\u0020\uD7FF\uE000\uFFFD\U00010000\U0010FFFF",
	"byte order mark":   "\uFEFFx\uFEFF",
	"C1 controls":       "\u007f\u0080\u0085\u009f\u2028",
	"combining":         "e\u0301 é", // must not be normalised
	"Base64":            "AAECAwQFBgcICQ==",
	"percent and plus":  "%41+%2B%%",
	"null word":         "null",
	"largest":           strings.Repeat("x", queue.MaxText),
	largeUnicode:        strings.Repeat("🚀", queue.MaxText/4),
	"much markup":       strings.Repeat(`"`, 20_000),
}

// largeUnicode is a text that a server must not decode in pieces.
const largeUnicode = "largest, outside ASCII"

// texts returns the awkward texts that the backend supports.
func (e *env) texts() map[string]string {
	all := maps.Clone(awkward)
	if why := e.h.Quirks.LargeUnicode; why != "" {
		e.Logf("left out %s: %s", largeUnicode, why)
		delete(all, largeUnicode)
	}
	return all
}

var textTests = []test{
	{"TextRoundTrip", func(e *env) {
		e.create()
		for name, text := range e.texts() {
			if sent := e.enqueue(text, nil); sent.Text != text {
				e.Errorf("%s: text of the enqueued message: got %q, want %q", name, short(sent.Text), short(text))
			}
			if seen := e.peek(1); len(seen) != 1 || seen[0].Text != text {
				e.Errorf("%s: peek: got %+v, want %q", name, seen, short(text))
			}
			m := e.one(long)
			if m.Text != text {
				e.Errorf("%s: dequeue: got %q, want %q", name, short(m.Text), short(text))
			}
			e.ok(e.q.Delete(e.ctx, m.Lease))
		}
	}},
	{"TextRoundTripThroughUpdate", func(e *env) {
		e.create()
		e.enqueue("x", nil)
		for name, text := range e.texts() {
			m := e.one(long)
			_, err := e.q.Update(e.ctx, m.Lease, text, 0)
			e.ok(err)
			m = e.one(long)
			if m.Text != text {
				e.Errorf("%s: dequeue after an update: got %q, want %q", name, short(m.Text), short(text))
			}
			_, err = e.q.Update(e.ctx, m.Lease, "x", 0)
			e.ok(err)
		}
	}},
	{"EscapedTextIsBoundedToo", func(e *env) {
		// 64 KiB of quotes become 320 KiB of XML, more than the limit of a request.
		e.create()
		_, err := e.q.Enqueue(e.ctx, strings.Repeat(`"`, queue.MaxText), nil)
		if e.h.HTTP {
			e.is(err, queue.ErrTooLarge, "enqueue of 65,536 quotes")
			e.none("after the refusal")
			m := e.enqueue("x", nil)
			_, err := e.q.Update(e.ctx, m.Lease, strings.Repeat(`"`, queue.MaxText), 0)
			e.is(err, queue.ErrTooLarge, "update to 65,536 quotes")
			return
		}
		e.ok(err)
	}},
	{"EqualTextsAreDifferentMessages", func(e *env) {
		e.create()
		a, b := e.enqueue("same", nil), e.enqueue("same", nil)
		if a.ID == b.ID || a.ID == "" {
			e.Errorf("ids: got %q and %q, want two", a.ID, b.ID)
		}
		batch := e.take(2, long)
		if batch[0].ID == batch[1].ID {
			e.Errorf("dequeue: got message %s twice, want two messages", batch[0].ID)
		}
	}},
}
