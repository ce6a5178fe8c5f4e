// Emulators compares local servers of the Queue service's protocol: the program millrace, in memory and
// with its data on disk, Azurite, and net/http with constant responses, the minimum for a Go server.
// Every server runs in a separate process and gets the same work from the same azqueue client.
// docs/performance.md says how to run it and has the results.
package main
