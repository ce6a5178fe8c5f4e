// Package postgrestest runs a PostgreSQL server for tests, which can be killed and started again.
//
// The programs postgres and initdb are looked up in the folder that the environment variable
// POSTGRES_BIN names, then on PATH, then where Debian puts them. They are never downloaded.
// Without them a test is skipped with a message, or fails if MILLRACE_REQUIRE contains postgres.
//
// PostgreSQL refuses to run as root. Under root it runs as the user postgres, or as an unprivileged
// user.
//
// # Concurrency and shutdown
//
// The tests of one test binary share one server, with a database of their own each; a test that kills
// its server starts one with [Start]. [Stop] in TestMain ends the shared one. A watchdog process
// ends a server if the test binary dies first.
package postgrestest
