package blob

// PathOf returns the path of a blob's file in a directory.
func PathOf(d *Directory, ref Ref) string { return d.Manager.(*directory).path + "/" + file(ref) }
