//go:build !unix

package main

import (
	"errors"
	"time"
)

func processorTime() (time.Duration, error) {
	return 0, errors.New("processor time is measured with getrusage, which this system does not have")
}
