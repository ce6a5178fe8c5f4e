package roles

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestItemsOfAPieceAreItsLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines, group := rapid.IntRange(1, 50).Draw(t, "lines"), rapid.IntRange(1, 20).Draw(t, "group")
		piece := ""
		for range lines {
			piece += rapid.StringMatching(`[a-z]{0,5}`).Draw(t, "line") + "\n"
		}
		var all string
		n := 0
		for item := range cut(piece, group) {
			if got := strings.Count(item, "\n"); got != group && (n != items(lines, group)-1 || got > group) {
				t.Errorf("item %d of %d has %d lines, want %d", n, items(lines, group), got, group)
			}
			all += item
			n++
		}
		if all != piece || n != items(lines, group) {
			t.Errorf("got %d items with %q, want %d with %q", n, all, items(lines, group), piece)
		}
	})
}
