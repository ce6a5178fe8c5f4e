//go:build !unix

package millrace

// childVariable is never set: signals are tested where they can be sent.
const childVariable = "MILLRACE_TEST_CHILD"

func child() int { return 0 }
