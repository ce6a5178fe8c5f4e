// Package web is the page of the mosaic program: pictures are uploaded, mosaics grow on the page while
// the roles make them, and the queues at work are shown beside them.
//
// # Addresses
//
//	GET  /                               the page: a form, the jobs and the queues
//	GET  /jobs/{id}                      the page of a job
//	POST /jobs                           a new job: picture (a file) or builtin=1, library, tile, scale, tint, reuse
//	GET  /jobs/{id}/events               server-sent events of a job: snapshot, then slice and state
//	GET  /jobs/{id}/original             the picture, upright, at most 2048 pixels a side (JPEG)
//	GET  /jobs/{id}/slices/{i}           preview of a stored slice, at most 2048 pixels a side (JPEG)
//	GET  /jobs/{id}/mosaic               the mosaic, to be saved
//	GET  /jobs/{id}/zoom                 the levels of the zoom (JSON), largest first
//	GET  /jobs/{id}/zoom/{level}/{x}/{y} one square of a level (JPEG)
//	GET  /jobs/{id}/cells/{x}/{y}        the photograph in a cell (JSON): name, preview
//	GET  /previews/{library}/{n}         preview of tile n of a library, at most 512 pixels a side (JPEG)
//	GET  /jobs/{id}/delete               asks whether to delete a job
//	POST /jobs/{id}/delete               deletes a job
//	POST /jobs/{id}/retry                starts a failed job again
//	POST /libraries                      a new library: name, pictures (files)
//	GET  /events                         server-sent events of the queues: status, once a second
//	GET  /libraries/{key}/delete         asks whether to delete an uploaded library, and says what that does to jobs
//	POST /libraries/{key}/delete         deletes an uploaded library, unless a job has yet to read it
//	POST /queues/{name}/redrive          sends the poison messages of a queue back to it, and starts the jobs again that failed
//	POST /processors/{id}/kill           kills a processor
//	POST /faults                         kind=busy: the queue server answers 503; slow: slices take seconds; on=0 ends it;
//	                                     damage: a slice of the newest job is overwritten; none: ends busy and slow
//	GET  /static/…                       style and script
//
// With the parameter now a page has the figures of the queues of now, also if they cost requests: for people without a script.
//
// A client that accepts text/html gets pages and redirects, any other JSON; an error is {"error":"…"} there.
//
// # Security
//
// Every POST must be of the same origin, as [http.CrossOriginProtection] decides: browsers say where a request comes from, and a
// client that is no browser may do what its user may do. The Host of every request must be an address, localhost, or a
// configured name, so that no foreign name that resolves to this machine is answered. Nothing that a user sends is used as
// the name of a file: jobs and libraries have ids of our own, which are looked up.
//
// # Events
//
// A stream begins with the whole state, also after a reconnection, so nothing is lost. A client that reads
// slowly is sent what has changed since its last event, so that nothing is kept for it. A client that reads nothing of a
// response for two minutes is disconnected, whatever the response is; how long a download takes is not bounded.
//
// # Files
//
// All is kept in one folder: a folder for each job with its record, picture, layout and mosaic, the
// libraries that were uploaded, the tiles of those that jobs use, and a cache. All of it, and the blobs and the queues if they are
// told, counts against one limit, with what jobs at work may still take; what can be made again gives way first. Records are replaced by a rename, so a
// kill leaves the old one or the new one. After a restart, jobs that were not finished go on.
package web
