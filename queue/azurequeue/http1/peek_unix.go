//go:build unix

package http1

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// canPeek says whether a socket can be read here without waiting.
const canPeek = true

// read reads from the socket, which never blocks.
func (k *peeker) read(fd uintptr) bool {
	for {
		k.n, k.err = syscall.Read(int(fd), k.into)
		switch {
		case errors.Is(k.err, syscall.EINTR):
			continue
		case errors.Is(k.err, syscall.EAGAIN):
			k.n, k.err = 0, os.ErrDeadlineExceeded
		case k.err != nil:
			k.n = 0
		case k.n == 0:
			k.err = io.EOF
		}
		return true // done, do not wait until there is something
	}
}
