// Command billing turns usage records into bills: hundreds of thousands of records, exact to the cent, whatever is
// killed meanwhile. README.md describes the commands.
//
// The files of this package are the command line around the parts of the system: the commands (cli.go), all
// roles in one process (local.go, tally.go, summary.go), one role in a process of its own (role.go, workshown.go), the
// premises (usage.go, ship.go, generate.go), and the report (reports.go).
package main
