package cli

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Escaped returns a text without characters that a terminal would obey, such as ESC or a change of the direction of writing: they
// are written as in Go, such as \x1b. Line ends and tabs stay.
func Escaped(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		part := text[i : i+size]
		if i += size; r == utf8.RuneError && size == 1 || r != '\n' && r != '\t' && !strconv.IsGraphic(r) {
			quoted := strconv.Quote(part)
			part = quoted[1 : len(quoted)-1]
		}
		b.WriteString(part)
	}
	return b.String()
}

// InLine returns a text that was chosen by others, such as the name of a file, as part of a line: with its line ends escaped too.
func InLine(text string) string {
	return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(Escaped(text))
}
