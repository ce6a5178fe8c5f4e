// Command mosaic turns a photograph into a photo mosaic with three worker roles that
// communicate over four queues. README.md describes the commands, package roles how it
// works. It shows typed listeners and producers over Azure Queue Storage, or over an
// emulator that it starts itself.
//
// The files of this package are the command line around the roles: the commands (cli.go), the client (render.go and
// output.go), the other roles (worker.go), and the page with all of them (serve.go).
package main
