// Package httpsyntax has the parts of HTTP's syntax (RFC 9110, section 5) that our server loop
// and our client transport share: tokens, names and values of header fields, hosts. It follows
// net/http. Everything is safe for concurrent use, and allocates nothing for usual headers.
package httpsyntax
