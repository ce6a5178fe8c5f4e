// Command mosaic turns a photograph into a photo mosaic, by way of four queues and
// three worker roles: see README.md for the commands and package roles for how it
// works. It is the whole of Millrace in one program: typed listeners and producers
// over Azure Queue Storage, or over the emulator that it starts for itself.
//
// The files of this package are the command line around the roles: what was asked
// for (cli.go), the account (account.go), the making (render.go), and what is shown
// of it (progress.go, summary.go).
package main
