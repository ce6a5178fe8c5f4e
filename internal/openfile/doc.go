// Package openfile asks the operating system about open files: it locks them, and finds out whether they were deleted.
// All functions are safe for concurrent use and return at once.
package openfile
