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

// Report is the former name of [Summary].
//
// Deprecated: Use [Summary]. The next release removes Report.
//
//go:fix inline
type Report = Summary
