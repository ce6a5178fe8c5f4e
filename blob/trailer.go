package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// A trailer is what follows the content in a file of a [Directory]: the metadata as JSON and a
// footer of fixed length with the size and the checksum of that JSON. A file that does not end
// in a footer is content alone. Content that itself ends in one is followed by a trailer, so
// that exactly the last one is taken off.
const (
	footerMark   = "\nmillrace-blob-metadata/1 "
	footerSize   = len(footerMark) + 8 + 1 + 2*sha256.Size + 1
	maxTrailer   = 64 << 10 // of the JSON, in bytes; metadata need less even if every byte is escaped
	footerFormat = footerMark + "%08x %x\n"
)

var errTrailer = errors.New("the metadata behind the content of the file are damaged")

// writeTrailer appends the metadata to a file that has so much content and is positioned at its
// end. It appends nothing if there are no metadata and none would be read.
func writeTrailer(f interface {
	io.Writer
	io.ReaderAt
}, size int64, metadata map[string]string) error {
	if len(metadata) == 0 {
		if footer, err := readFooter(f, size); err != nil || footer == nil {
			return err
		}
	}
	text, err := json.Marshal(metadata)
	if err == nil {
		_, err = fmt.Fprintf(f, "%s"+footerFormat, text, len(text), sha256.Sum256(text))
	}
	return err
}

func readTrailer(f io.ReaderAt, size int64) (content int64, metadata map[string]string, err error) {
	footer, err := readFooter(f, size)
	if err != nil || footer == nil {
		return size, nil, err
	}
	length, err := strconv.ParseUint(string(footer[len(footerMark):len(footerMark)+8]), 16, 32)
	content = size - int64(footerSize) - int64(length)
	if err != nil || length > maxTrailer || content < 0 {
		return 0, nil, errTrailer
	}
	text := make([]byte, length)
	if err := readAt(f, text, content); err != nil {
		return 0, nil, err
	}
	sum := sha256.Sum256(text)
	if string(footer[len(footerMark)+9:footerSize-1]) != hex.EncodeToString(sum[:]) {
		return 0, nil, errTrailer
	}
	if err := json.Unmarshal(text, &metadata); err != nil {
		return 0, nil, errTrailer
	}
	return content, cloneMetadata(metadata), nil
}

// readFooter returns the footer at the end of a file of this size, or nil if there is none.
func readFooter(f io.ReaderAt, size int64) ([]byte, error) {
	if size < int64(footerSize) {
		return nil, nil
	}
	footer := make([]byte, footerSize)
	if err := readAt(f, footer, size-int64(footerSize)); err != nil {
		return nil, err
	}
	if string(footer[:len(footerMark)]) != footerMark || footer[footerSize-1] != '\n' {
		return nil, nil
	}
	return footer, nil
}

func readAt(f io.ReaderAt, p []byte, offset int64) error {
	_, err := io.ReadFull(io.NewSectionReader(f, offset, int64(len(p))), p)
	return err
}
