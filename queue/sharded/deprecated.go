package sharded

// Watch is the former name of [Monitor].
//
// Deprecated: Use [Monitor]. The next release removes Watch.
//
//go:fix inline
type Watch = Monitor

// WatchOptions is the former name of [MonitorOptions].
//
// Deprecated: Use [MonitorOptions]. The next release removes WatchOptions.
//
//go:fix inline
type WatchOptions = MonitorOptions

// NewWatch is the former name of [NewMonitor].
//
// Deprecated: Use [NewMonitor]. The next release removes NewWatch.
//
//go:fix inline
func NewWatch(o *MonitorOptions) (*Monitor, error) { return NewMonitor(o) }
