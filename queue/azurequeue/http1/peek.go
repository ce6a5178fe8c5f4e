package http1

import (
	"net"
	"os"
	"syscall"
)

// peeker reads the bytes that a socket has already received.
type peeker struct {
	socket   syscall.RawConn    // nil if the connection has none that can be peeked at
	readFunc func(uintptr) bool // k.read as a value, to avoid an allocation a call
	into     []byte
	n        int   // result of read
	err      error // result of read
}

func newPeeker(raw net.Conn) *peeker {
	k := &peeker{}
	k.readFunc = k.read
	if s, ok := raw.(syscall.Conn); ok && canPeek {
		k.socket, _ = s.SyscallConn() // nil with an error
	}
	return k
}

// Read reads without waiting. The error is [os.ErrDeadlineExceeded] if nothing has been received,
// or the socket cannot be peeked at.
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
