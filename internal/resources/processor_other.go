//go:build !unix && !windows

package resources

import "time"

func processorTime() (time.Duration, bool) { return 0, false }
