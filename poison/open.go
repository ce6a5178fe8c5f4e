package poison

import "github.com/millrace/millrace/codec"

// open opens a text to look into it or to put it right, which needs no understanding of its body.
func open(text string, f codec.Format) (codec.Head, []byte, codec.Format, error) {
	return codec.Open(text, f, codec.Kinds, codec.Claims, codec.Groups)
}
