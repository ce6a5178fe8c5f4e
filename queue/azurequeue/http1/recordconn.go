package http1

import (
	"net"
)

// recordConn is the connection below TLS. It can read without waiting, and tracks where TLS
// records end, because TLS does not report whether it holds a partial one.
type recordConn struct {
	net.Conn
	peeker *peeker
	peek   bool // read without waiting

	header    [5]byte // of the current record
	headerLen int     // bytes of the header read
	remaining int     // bytes of the record after its header
}

// Read implements [io.Reader].
func (b *recordConn) Read(p []byte) (n int, err error) {
	if b.peek {
		n, err = b.peeker.Read(p)
	} else {
		n, err = b.Conn.Read(p)
	}
	b.trackRecords(p[:n])
	return n, err
}

// trackRecords tracks the record boundaries (RFC 8446, section 5.1): a header has the type, the
// version and two bytes of length.
func (b *recordConn) trackRecords(p []byte) {
	for len(p) > 0 {
		if b.remaining > 0 {
			n := min(b.remaining, len(p))
			b.remaining -= n
			p = p[n:]
			continue
		}
		n := copy(b.header[b.headerLen:], p)
		b.headerLen += n
		p = p[n:]
		if b.headerLen == len(b.header) {
			b.headerLen, b.remaining = 0, int(b.header[3])<<8|int(b.header[4])
		}
	}
}

// atRecordBoundary reports whether the bytes read so far end with a whole record.
func (b *recordConn) atRecordBoundary() bool { return b.headerLen == 0 && b.remaining == 0 }
