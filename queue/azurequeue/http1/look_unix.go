//go:build unix

package http1

import "syscall"

// canLook says whether look works here.
const canLook = true

// look tries to read from the socket, which never blocks. Only a socket that is
// open and has nothing to say has nothing to read: an end or an error is a closed
// one, and data is an answer to nothing.
func (c *conn) look(fd uintptr) bool {
	var b [1]byte
	for {
		_, err := syscall.Read(int(fd), b[:])
		if err == syscall.EINTR {
			continue
		}
		c.quiet = err == syscall.EAGAIN
		return true // done, do not wait until there is something
	}
}
