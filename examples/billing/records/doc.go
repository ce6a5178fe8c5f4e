// Package records reads usage records and tariffs, and computes what a record costs.
//
// What is read is bounded: a line, a text and a number that is too long is rejected with a reason, and the rest of the file is read.
// Numbers are decimals from the file to the report; nothing is a floating-point number.
package records
