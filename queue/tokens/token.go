package tokens

import (
	"fmt"
	"strconv"
	"strings"
)

// mark begins the text of every token.
const mark = "millrace-token/1"

// blankIndex is the index of a token that is not worth anything yet.
const blankIndex = -1

func textOf(set string, index int) string {
	if index == blankIndex {
		return fmt.Sprintf("%s set=%s blank", mark, set)
	}
	return fmt.Sprintf("%s set=%s index=%d", mark, set, index)
}

func parse(text string) (set string, index int, ok bool) {
	parts := strings.Split(text, " ")
	if len(parts) != 3 || parts[0] != mark {
		return "", 0, false
	}
	set, found := strings.CutPrefix(parts[1], "set=")
	if !found || set == "" {
		return "", 0, false
	}
	if parts[2] == "blank" {
		return set, blankIndex, true
	}
	number, found := strings.CutPrefix(parts[2], "index=")
	index, err := strconv.Atoi(number)
	if !found || err != nil || index < 0 || strconv.Itoa(index) != number {
		return "", 0, false
	}
	return set, index, true
}
