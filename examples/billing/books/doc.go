// Package books keeps what was billed in a database, for reports: SQLite in a file, or PostgreSQL.
//
// A batch is recorded in one transaction, under its name: all of it or nothing. Recording it again
// changes nothing, also when two processes do so at once, or when the answer to the first time was
// lost. So whoever does not know whether a batch was recorded records it again.
//
// # Durability
//
// When Record has returned, the batch outlasts a kill of any process and the loss of power, as far as
// the disk keeps what it has confirmed. SQLite has a write-ahead log (journal_mode WAL) that is
// written through to the disk at each commit (synchronous FULL, on macOS with fullfsync).
// PostgreSQL writes through at each commit by default; a transaction here switches
// synchronous_commit on where the server, the database or the role has switched it off. What a
// server with fsync = off has confirmed is lost with the power, whatever a client does.
//
// # Amounts
//
// Amounts and quantities are decimals and never binary fractions: TEXT in SQLite, NUMERIC in
// PostgreSQL. Sums are computed in Go from rows that the database has sorted, so that both give the
// same. In SQL, sum(amount) is exact in PostgreSQL and is not in SQLite, which sums
// text as binary fractions.
//
// # Tables
//
// In SQLite they are in the file, in PostgreSQL in the schema millrace_billing:
//
//	batches     name, file, records, billed, rejected, items, handed_over, reported
//	sums        batch, account, tariff, currency, records, quantity, amount
//	rejections  batch, number, file, line, id, reason
//	about       application, version (of the tables; PostgreSQL only)
//
// SQLite has the application and the version in its application_id and user_version. A database of
// another program is refused and not written to, and so is one that a newer version made.
//
// # Readers
//
// Reports can be made while a controller records: a Snapshot shows one moment, and neither waits for the
// other. With WAL all processes that use an SQLite file are on one machine, and the file is not on a
// network file system; use PostgreSQL where that is not so.
package books
