package http1

import (
	"net"
	"os"
	"syscall"
)

// peeker reads from a socket what has come already.
type peeker struct {
	socket   syscall.RawConn    // nil when there is none, or it cannot be read so
	readFunc func(uintptr) bool // k.read, made once
	into     []byte
	n        int   // what read has found
	err      error // likewise
}

func newPeeker(raw net.Conn) *peeker {
	k := &peeker{}
	k.readFunc = k.read
	if s, ok := raw.(syscall.Conn); ok && canPeek {
		k.socket, _ = s.SyscallConn() // nil with an error
	}
	return k
}

// Read reads without waiting. When nothing has come, or nobody can tell, the error is
// [os.ErrDeadlineExceeded].
func (k *peeker) Read(p []byte) (int, error) {
	if k.socket == nil {
		return 0, os.ErrDeadlineExceeded
	}
	k.into = p
	err := k.socket.Read(k.readFunc)
	k.into = nil
	if err != nil { // closed, or its deadline has passed
		return 0, net.ErrClosed
	}
	return k.n, k.err
}

// below is the connection below TLS. It can be told not to wait, and follows the records
// that TLS reads, because TLS does not tell whether it holds a part of one.
type recordConn struct {
	net.Conn
	peeker *peeker
	peek   bool // read without waiting

	header    [5]byte // of the record that is being read
	headerLen int     // bytes of the header
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

// follow notes where the records end, by RFC 8446, section 5.1: a header has the type, the
// version and, in two bytes, the length.
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

// whole tells whether what was read ends with a record.
func (b *recordConn) atRecordBoundary() bool { return b.headerLen == 0 && b.remaining == 0 }
