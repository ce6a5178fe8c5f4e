package serverwakeup

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// maxLine is the longest line of a stream, in bytes.
const maxLine = 512

// hello is the first line of a stream: from it on the stream is in force.
type hello struct {
	id    string        // names the stream
	alive time.Duration // a line comes at least so often
}

var errNoHello = errors.New("the response does not begin as a wake-up stream does")

// parseHello parses "ready ID SECONDS".
func parseHello(line string) (hello, error) {
	words := strings.Split(line, " ")
	if len(words) < 3 || words[0] != "ready" || !isID(words[1]) {
		return hello{}, errNoHello
	}
	seconds, err := strconv.Atoi(words[2])
	if err != nil || seconds < 1 || seconds > 3600 {
		return hello{}, errNoHello
	}
	return hello{id: words[1], alive: time.Duration(seconds) * time.Second}, nil
}

// isID reports whether a text can name a stream.
func isID(text string) bool {
	for i := range len(text) {
		switch b := text[i]; {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', b == '-', b == '_':
		default:
			return false
		}
	}
	return text != "" && len(text) <= 128
}

// parseEvent parses "event BYTES". Everything that is not an event is ignored: an empty line says that
// the server is alive, and a later version may say more.
func parseEvent(line string) (bytes int64, ok bool) {
	word, rest, _ := strings.Cut(line, " ")
	if word != "event" {
		return 0, false
	}
	number, _, _ := strings.Cut(rest, " ")
	bytes, err := strconv.ParseInt(number, 10, 64)
	if err != nil || bytes < 0 {
		return 0, true // unknown
	}
	return bytes, true
}
