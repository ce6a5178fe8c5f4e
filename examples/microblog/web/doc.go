// Package web is the web role of the microblog: pages that list channels, show their posts page by page, and take new
// channels, new posts and deletions.
//
// # Addresses
//
//	GET  /                                     channels, and a form for a new one; from: where the page begins
//	POST /channels                             a new channel: name, owner, once
//	GET  /channel?name=N                       posts of a channel, and a form for a new one; from: where the page begins
//	POST /channel?name=N&incarnation=I         a new post: user, title, text, once
//	GET  /delete?name=N                        asks whether to delete a channel
//	POST /delete?name=N&incarnation=I          sends the deletion to the worker: once
//	GET  /deleting?name=N&incarnation=I        says how far readers still see the channel
//	GET  /static/…                             style and icon
//
// The name of a channel is any text, so it is in the query and nowhere else: browsers resolve dots in paths, and
// change line breaks and NUL in fields of forms.
//
// # Deletion
//
// A deletion is a message to the worker, and the page says so: readers see the channel until the worker has marked it,
// and nothing of it from then on. The forms carry the incarnation of the channel that the user saw, so that what was
// meant for one channel does not happen to another that was made under its name since.
//
// # Forms that come twice
//
// A form has a random id, once. A second one with the same id, of a double click, gets the result of the first and does
// nothing. A process remembers the last 1,000 that succeeded. What a form does is finished when the client has
// left, because the browser leaves the first request of a double click.
//
// # Security
//
// Package webpage refuses what other pages send, and hosts that are not this server's. There is no script, and the
// policy of the pages allows none. All texts of users are escaped by html/template, and isolated from the direction
// of the text around them. Forms, headers and the time of a request are bounded. The program has no users of its own:
// everybody who reaches it can write and delete.
//
// # Concurrency
//
// A server is safe for concurrent use. It starts no goroutine.
package web
