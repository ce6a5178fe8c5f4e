//go:build !race

package paired_test

// allJobs is how many jobs the full test of outages sends.
const allJobs = 100_000
