package codec_test

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/codec/zstdcodec"
)

// The codec of a producer and of its listener.
func Example_zstd() {
	type report struct{ Text string }
	c, err := zstdcodec.New[report](nil, &zstdcodec.Options{MaxBody: 1 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}

	body, err := c.Encode(report{strings.Repeat("all is well. ", 1000)})
	if err != nil {
		fmt.Println(err)
	}
	got, err := c.Decode(body)
	fmt.Println(len(body) < 100, len(got.Text), err)
	// Output: true 13000 <nil>
}
