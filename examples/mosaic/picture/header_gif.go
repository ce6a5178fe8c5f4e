package picture

import "encoding/binary"

// gif reads the logical screen descriptor.
func (s *scanner) gif() (Header, error) {
	b, err := s.take(13)
	if err != nil {
		return Header{}, err
	}
	h := Header{
		Format:      "gif",
		Width:       int(binary.LittleEndian.Uint16(b[6:])),
		Height:      int(binary.LittleEndian.Uint16(b[8:])),
		orientation: upright,
	}
	// A byte a pixel, twice while it is de-interlaced, and four more if the first
	// frame does not cover the screen and has to be laid on a white one.
	pixels := int64(h.Width) * int64(h.Height)
	h.retained, h.DecodeBytes = pixels, 6*pixels
	return h, nil
}
