package serverwakeup

// New is the former name of [Open].
//
// Deprecated: Use [Open]. The next release removes New.
//
//go:fix inline
func New(location string, o *Options) (*Source, error) { return Open(location, o) }
