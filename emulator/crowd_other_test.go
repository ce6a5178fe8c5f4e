//go:build !unix

package emulator

// crowdVariable is never set: the test is for systems with a limit on open files.
const crowdVariable = "MILLRACE_TEST_CROWD"

func crowd(string) int { return 0 }

var _ = crowdSize
