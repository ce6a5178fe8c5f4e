package agentfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is everything that is wrong with a file.
type Error struct {
	// Path is the path of the file.
	Path string

	// Problems are in the order of the lines. At least one.
	Problems []Problem
}

// Problem is one thing that is wrong.
type Problem struct {
	// Line is the line, counted from 1; 0 if it concerns the whole file.
	Line int

	// Text says what is wrong and what is allowed. It contains no secret.
	Text string
}

// Error returns all problems, each on a line of its own that begins with the path and the line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, one := range e.Problems {
		lines[i] = fmt.Sprintf("%s: %s", e.Path, one.Text)
		if one.Line > 0 {
			lines[i] = fmt.Sprintf("%s:%d: %s", e.Path, one.Line, one.Text)
		}
	}
	return strings.Join(lines, "\n")
}

func (p *parser) error(path string) *Error {
	slices.SortStableFunc(p.problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	return &Error{Path: path, Problems: slices.Compact(p.problems)}
}
