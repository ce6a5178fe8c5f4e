//go:build !unix

// Package processor measures the processor time of this process.
package processor

import (
	"errors"
	"time"
)

// Time returns an error: it needs getrusage.
func Time() (time.Duration, error) {
	return 0, errors.New("processor time is measured with getrusage, which this system does not have")
}
