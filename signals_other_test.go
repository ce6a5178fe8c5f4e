//go:build !unix

package millrace

// childVariable is never set: signals are tested only where they can be sent.
const childVariable = "MILLRACE_TEST_CHILD"

func child() int { return 0 }
