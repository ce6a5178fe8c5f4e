// Package webpage holds what every web front of this repository needs: protection against the pages of others, a base
// stylesheet, and static files that browsers need not fetch twice.
//
// A [Guard] refuses state-changing requests that come from a page of another origin, as [http.CrossOriginProtection] decides.
// Clients other than browsers may do whatever their user may do. It also refuses requests for an unknown Host, so that a foreign
// name that resolves to this machine does not share its origin. Its headers forbid browsers to guess types, to send
// referrers, and to show pages in frames.
//
// [Static] serves /static/base.css, the stylesheet that all pages start from, beside the files of a front.
//
// # Concurrency
//
// All handlers are safe for concurrent use.
package webpage
