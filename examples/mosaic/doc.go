// Command mosaic turns a photograph into a photo mosaic with three worker roles that
// communicate over four queues. README.md describes the commands, package roles how it
// works. It shows typed listeners and producers over Azure Queue Storage, or over an
// emulator that it starts itself.
//
// The files of this package are the command line around the roles: arguments (cli.go), the
// account (account.go), the work (render.go) and the output (output.go, progress.go,
// summary.go).
package main
