//go:build !unix

package main

import (
	"errors"
	"os"
	"time"
)

// processorTime returns an error: it needs getrusage.
func processorTime() (time.Duration, error) {
	return 0, errors.New("processor time is measured with getrusage, which this system does not have")
}

// now returns the wall clock, which all processes of a machine share.
func now() instant { return instant(time.Now().UnixNano()) }

// peak is unknown here.
func peak(*os.ProcessState) int64 { return 0 }
