// Package channels keeps the channels and blogs of the microblog in two tables.
package channels
