// Package report makes a report from the books: five CSV files, and a page with charts that is one file.
//
// # Columns
//
// Amounts have all decimals of their currency and no unit; quantities have no trailing zeros. Both are exact. Times are RFC
// 3339 in UTC. Rows are ordered by their first columns, byte by byte.
//
//		totals.csv      account, tariff, currency, records, quantity, amount
//		accounts.csv    account, currency, records, amount
//		tariffs.csv     tariff, currency, records, quantity, amount
//		batches.csv     batch, file, records, billed, rejected, items, handed_over, reported, latency_seconds
//		rejections.csv  batch, file, line, id, reason
//
//	  - records in the first three: how many records are in the sum. In batches.csv: the lines of the
//	    batch, which are those billed and those rejected.
//	  - quantity: the sum of the quantities, in the unit of the tariff.
//	  - amount: the sum of the amounts, each of which was rounded to the smallest amount of the currency, half to even.
//	  - items: into how many work items the batch was split.
//	  - handed_over and reported: when the batch was handed over, and when it came into the books.
//	  - latency_seconds: the time between these.
//	  - file and line: where the rejected line is. id: its own, as far as it could be read.
//
// A text that a spreadsheet could take for a formula has ' before it: one that begins with =, +, - or @, or
// has one of these after a character that some spreadsheets split cells at.
//
// # Percentiles
//
// They are by nearest rank: the pth percentile of n latencies is the one with rank ⌈p/100 × n⌉, so that it is a
// latency that some batch had. This is definition 1 in R. J. Hyndman and Y. Fan, Sample Quantiles in
// Statistical Packages, The American Statistician 50 (1996), 361–365.
//
// # Money of storage
//
// A request costs the same whatever it asks, see docs/cost.md, unless the price says otherwise. The
// naive design sends one message for each record and one for each result. Each is put, received and deleted alone,
// which is 6 requests a record; idle polls and retries are not counted for it.
package report
