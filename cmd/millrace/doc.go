// Millrace is the emulator of Azure Queue Storage as a program: it serves the
// REST protocol of the service on this machine, for every client that speaks it.
//
//	millrace serve      until Ctrl-C
//	millrace version
//	millrace help
//
// What it guarantees is what packages emulator and localqueue do. It ends with
// status 0 when it was told to stop, 1 when it could not run, and 2 when the command
// line was wrong; then there is one line on standard error that says what to do.
//
// SIGINT and SIGTERM let requests that are under way finish, for up to ten seconds; a
// second one does not wait.
package main
