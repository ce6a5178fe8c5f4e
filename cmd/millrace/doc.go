// Millrace serves the REST protocol of Azure Queue Storage on this machine, for every
// client that speaks it, and shows, fills and clears the queues of any account.
//
//	millrace serve                the emulator, until Ctrl-C
//	millrace queues [PREFIX]      list queues
//	millrace create QUEUE         make one
//	millrace drop QUEUE           delete one with its messages
//	millrace put QUEUE [TEXT…]    put jobs on one, or the lines of the standard input
//	millrace peek QUEUE           show messages without taking them
//	millrace clear QUEUE          delete all messages
//	millrace stat QUEUE           show what is known about one
//	millrace version
//	millrace help [COMMAND]
//
// What the server guarantees is what packages emulator and localqueue do. The other
// commands work on the account that -account says, or the environment variable
// AZURE_STORAGE, or else the server on this machine. Queues, peek and stat have -json: one
// object a line.
//
// The program ends with status 0 when it did what it was told to, 1 when it could not, 2
// when the command line was wrong, and 130 when a signal ended it before it was done; then
// there is one line on standard error that says what to do. No output has a key, a
// signature or a receipt in it. Keys need not stand on the command line, which everybody on
// the machine can read: -account takes @FILE, -serve-account name:@FILE, and the variables
// AZURE_STORAGE and MILLRACE_ACCOUNTS the same as the flags.
//
// SIGINT and SIGTERM let requests that are under way finish, those of serve for up to ten
// seconds; a second one does not wait.
package main
