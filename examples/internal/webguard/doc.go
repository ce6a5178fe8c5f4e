// Package webguard protects a web front that has no password from the pages of others: what they make a browser send
// is refused, and what they embed is not shown.
//
// A [Guard] refuses requests that change something and come from a page of another origin, as
// [http.CrossOriginProtection] decides: browsers say where a request comes from, and a client that is no browser may do what its
// user may do. It refuses requests for a Host that is neither an address, localhost nor a configured name: a page of a
// foreign name that resolves to this machine would otherwise be of the same origin. It forbids browsers to guess
// types, to tell other sites what was read here, and to show pages in frames.
//
// # Concurrency
//
// The handler of a guard is safe for concurrent use.
package webguard
