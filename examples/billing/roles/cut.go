package roles

import (
	"iter"
	"strings"
)

// cut cuts a piece into items of that many lines; the last one may have fewer.
func cut(piece string, group int) iter.Seq[string] {
	return func(yield func(string) bool) {
		for piece != "" {
			end := 0
			for range group {
				line := strings.IndexByte(piece[end:], '\n')
				if line < 0 {
					end = len(piece)
					break
				}
				end += line + 1
			}
			if !yield(piece[:end]) {
				return
			}
			piece = piece[end:]
		}
	}
}

// items returns how many items cut makes of so many records.
func items(records, group int) int { return (records + group - 1) / group }
