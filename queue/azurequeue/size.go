package azurequeue

import (
	"encoding/xml"
	"fmt"

	"github.com/millrace/millrace/queue"
)

// maxBody is the largest request body the service takes, in bytes. Only its
// error messages tell (413 RequestBodyTooLarge).
const maxBody = 131_584

const tooLargeHint = "Base64 text is not escaped and always fits; keep larger bodies in a blob and send a reference"

// envelope is what azqueue sends around an escaped text.
const envelope = len(xml.Header + "<QueueMessage><MessageText></MessageText></QueueMessage>")

// checkSize refuses a text within [queue.MaxText] that becomes a body over the
// limit: encoding/xml makes five bytes of every quote, so that 64 KiB of JSON
// may be 160 KiB on the wire.
func checkSize(text string) error {
	if n := envelope + escapedLen(text); n > maxBody {
		return &queue.Error{Kind: queue.ErrTooLarge, Hint: tooLargeHint,
			Detail: fmt.Sprintf("message text of %d bytes is a request of %d with its characters escaped for XML, the limit is %d", len(text), n, maxBody)}
	}
	return nil
}

// escapedLen is how many bytes encoding/xml makes of a text that
// [queue.CheckText] has passed.
func escapedLen(text string) int {
	n := len(text)
	for i := range len(text) {
		switch text[i] {
		case '"', '\'', '&', '\t', '\n', '\r': // &#34; &#39; &amp; &#x9; &#xA; &#xD;
			n += 4
		case '<', '>': // &lt; &gt;
			n += 3
		}
	}
	return n
}
