package codec_test

import (
	"flag"
	"fmt"

	"github.com/millrace/millrace/codec"
)

// A format can be a flag or a field of a configuration file.
func ExampleFormat_UnmarshalText() {
	flags := flag.NewFlagSet("worker", flag.ContinueOnError)
	var f codec.Format
	flags.TextVar(&f, "format", codec.Auto, "how messages carry jobs")
	err := flags.Parse([]string{"-format", "base64"})
	fmt.Println(f, "counts attempts:", f.HasHead(), err)
	// Output: base64 counts attempts: false <nil>
}
