//go:build race

package paired_test

// allJobs is how many jobs the full test of outages sends. The race detector makes each several times as slow.
const allJobs = 20_000
