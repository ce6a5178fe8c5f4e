package codec_test

import (
	"fmt"

	"github.com/millrace/millrace/codec"
)

// What a worker with Options.Wire.AcceptForeign finds: messages of other programs, and those that it has put
// into an envelope when they failed.
func ExampleOpenForeign() {
	adopted, err := codec.Seal(codec.Head{Attempts: 2}, []byte("ship order 8"), codec.Envelope)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, text := range []string{"ship order 7", adopted} {
		head, body, format, err := codec.OpenForeign(text, codec.Plain)
		fmt.Println(string(body), format, head.Attempts, err)
	}
	// Output:
	// ship order 7 plain 0 <nil>
	// ship order 8 envelope 2 <nil>
}
