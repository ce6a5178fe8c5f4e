package blob

// Dir is the former name of [Open].
//
// Deprecated: Use [Open]. The next release removes Dir.
//
//go:fix inline
func Dir(dir string) (*Directory, error) { return Open(dir) }
