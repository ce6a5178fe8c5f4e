// Package azurestorage is what the clients of Azure Storage's services share: what a location
// may be, HTTP clients, errors of credentials and networks, the text of error responses, and the
// removal of secrets from all of it.
//
// Everything in it is safe for concurrent use.
package azurestorage
