package stores

// Blobs is the former name of [OpenBlobs].
//
// Deprecated: Use [OpenBlobs]. The next release removes Blobs.
//
//go:fix inline
func Blobs(location string, o *Options) (*BlobStore, error) { return OpenBlobs(location, o) }

// Tables is the former name of [OpenTables].
//
// Deprecated: Use [OpenTables]. The next release removes Tables.
//
//go:fix inline
func Tables(location string, o *Options) (*TableSet, error) { return OpenTables(location, o) }
