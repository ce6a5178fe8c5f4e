package blob

import (
	"bytes"
	"maps"
	"testing"
)

// memoryFile is a file that is positioned at its end.
type memoryFile struct{ bytes.Buffer }

func (f *memoryFile) ReadAt(p []byte, offset int64) (int, error) {
	return bytes.NewReader(f.Bytes()).ReadAt(p, offset)
}

// FuzzTrailer: any file is a blob or an error, and what is read can be stored again.
func FuzzTrailer(f *testing.F) {
	f.Add([]byte("text"))
	f.Fuzz(func(t *testing.T, data []byte) {
		size, metadata, err := readTrailer(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		if size < 0 || size > int64(len(data)) {
			t.Fatalf("%q has a content of %d bytes", data, size)
		}
		var again memoryFile
		again.Write(data[:size])
		if err := writeTrailer(&again, size, metadata); err != nil {
			t.Fatal(err)
		}
		gotSize, got, err := readTrailer(&again, int64(again.Len()))
		if err != nil || gotSize != size || !maps.Equal(got, metadata) {
			t.Fatalf("stored again it has %d bytes and %v, %v; want %d and %v", gotSize, got, err, size, metadata)
		}
	})
}
