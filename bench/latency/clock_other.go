//go:build !linux

package main

import "time"

// now returns the wall clock, which all processes of a machine share.
func now() instant { return instant(time.Now().UnixNano()) }
