package naming

import (
	"slices"
	"strings"
)

const (
	farthest  = 24 // longer words are no slips of the keyboard
	beginning = 3  // letters that are enough to recognize a word
)

// Hint returns ", did you mean WORD?", or "" without a close word.
func Hint(wrong string, known []string) string {
	if word := Closest(wrong, known); word != "" {
		return ", did you mean " + word + "?"
	}
	return ""
}

// Closest returns the known word that is closest to a wrong one, or the only one that begins with it. It
// returns "" without a close word.
func Closest(wrong string, known []string) string {
	if len(wrong) > farthest || len(known) == 0 {
		return ""
	}
	best := slices.MinFunc(known, func(a, b string) int { return distance(wrong, a) - distance(wrong, b) })
	if d := distance(wrong, best); d == 1 && len(wrong) > 1 || d <= 1+len(best)/4 && 2*d < len(wrong) {
		return best
	}
	var longer []string
	for _, word := range known {
		if len(wrong) >= beginning && strings.HasPrefix(word, wrong) {
			longer = append(longer, word)
		}
	}
	if len(longer) != 1 {
		return ""
	}
	return longer[0]
}

// distance returns how many letters must be inserted, removed, replaced, or swapped with their
// neighbour, to turn a into b: the optimal string alignment distance.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replaced := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			rows[i][j] = min(replaced, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
