package queuexml_test

import (
	"fmt"

	"github.com/millrace/millrace/internal/queuexml"
)

func ExampleParseBody() {
	body := "<QueueMessage><MessageText>" + string(queuexml.AppendText(nil, "1 < 2\r\n")) + "</MessageText></QueueMessage>"
	fmt.Printf("%q\n", body)
	text, err := queuexml.ParseBody([]byte(body))
	fmt.Printf("%q %v\n", text, err)

	_, err = queuexml.ParseBody([]byte("<!DOCTYPE x><QueueMessage/>"))
	fmt.Println(err)
	// Output:
	// "<QueueMessage><MessageText>1 &lt; 2&#xD;\n</MessageText></QueueMessage>"
	// "1 < 2\r\n" <nil>
	// malformed XML at byte 0: not an element: document types are not accepted
}
