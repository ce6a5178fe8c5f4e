package poison

// ListOptions is the former name of [Options].
//
// Deprecated: Use [Options]. The next release removes it.
//
//go:fix inline
type ListOptions = Options

// PurgeOptions is the former name of [Options].
//
// Deprecated: Use [Options]. The next release removes it.
//
//go:fix inline
type PurgeOptions = Options

// RedriveOptions is the former name of [Options].
//
// Deprecated: Use [Options]. The next release removes it.
//
//go:fix inline
type RedriveOptions = Options
