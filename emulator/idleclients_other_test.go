//go:build !unix

package emulator

// idleClientsVariable is never set: the test is for systems with a limit on open files.
const idleClientsVariable = "MILLRACE_TEST_IDLE_CLIENTS"

func runIdleClients(string) int { return 0 }

var _ = idleClientsCount
