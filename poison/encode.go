package poison

import (
	"bytes"
	"encoding/json"
	"strings"
)

// xmlLacks are the characters that JSON has as they are and XML does not have at all, as
// JSON can also write them. All others that XML lacks JSON escapes by itself, and what is no
// UTF-8 becomes U+FFFD.
var xmlLacks = strings.NewReplacer("\uFFFE", `\ufffe`, "\uFFFF", `\uffff`)

// encode returns the record as JSON that the queue can carry, whatever the handler's error
// has in it. Angle brackets and & stay as they are: the XML around escapes them anyway, and
// six bytes for each would count towards the 64 KiB.
func (r Record) encode() (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return "", err
	}
	// They can stand in strings alone, where the escape means the same.
	return xmlLacks.Replace(strings.TrimSuffix(b.String(), "\n")), nil
}
