package codec

import (
	"testing"

	"github.com/millrace/millrace/queue"
)

// What XML cannot carry is in Base64: every character that it leaves out, and bytes that are
// no UTF-8. The queue would refuse the text otherwise.
func TestABodyThatXMLCannotCarryIsSealedInBase64(t *testing.T) {
	bodies := []string{"\xff", "a\xc3", "\xed\xa0\x80", "\x7f\x1b"}
	for r := rune(0); r <= 0x10FFFF; r++ {
		if r < 0x20 || r >= 0xD7F0 && r <= 0xE00F || r >= 0xFFF0 && r <= 0x1000F || r >= 0x10FFF0 {
			bodies = append(bodies, string(r))
		}
	}
	for _, body := range bodies {
		text, err := Seal(Head{}, []byte("{"+body+"}"), Envelope)
		if err != nil {
			t.Fatal(err)
		}
		if err := queue.CheckText(text); err != nil {
			t.Errorf("%q: %v", body, err)
		}
		if _, got, _, err := Open(text, Envelope); err != nil || string(got) != "{"+body+"}" {
			t.Errorf("%q came back as %q, %v", body, got, err)
		}
	}
}
