// Package smalldisktest mounts small disks, which tests fill.
package smalldisktest
