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

// NewWatch is the former name of [NewMonitor]. go fix would change nothing in a file with a call of
// it beside a [WatchOptions], so it leaves NewWatch alone.
//
// Deprecated: Use [NewMonitor]. The next release removes NewWatch.
func NewWatch(o *MonitorOptions) (*Monitor, error) { return NewMonitor(o) }
