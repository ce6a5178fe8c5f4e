package internal_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/naming"
)

func TestTheTextOfAGUID(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b [16]byte
		copy(b[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "bytes"))
		s := naming.FormatGUID(b)
		if want := fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16]); s != want {
			t.Errorf("Format(%x) = %s, want %s", b, s, want)
		}
		if again, ok := naming.ParseGUID(s); again != b || !ok {
			t.Errorf("Parse(%s) = %x, %t, want %x", s, again, ok, b)
		}
	})
}

func TestOtherTextsAreNoGUIDs(t *testing.T) {
	const good = "00112233-4455-6677-8899-aabbccddeeff"
	if _, ok := naming.ParseGUID(good); !ok {
		t.Fatalf("Parse(%q) fails", good)
	}
	for _, s := range []string{
		"", good[:35], good + "0", "{" + good[1:35] + "}", strings.ToUpper(good), strings.ReplaceAll(good, "-", "0"),
		"00112233-4455-6677-88-9aabbccddeeff-", strings.Replace(good, "a", "g", 1), strings.Replace(good, "0", "-", 1),
		strings.Replace(good, "0", " ", 1),
	} {
		if b, ok := naming.ParseGUID(s); ok {
			t.Errorf("Parse(%q) = %x, want none", s, b)
		}
	}
}
