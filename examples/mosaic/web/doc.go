// Package web is the page of the mosaic program: pictures are uploaded, mosaics grow on the page while
// the roles make them, and the queues at work are shown beside them.
//
// # Addresses
//
//	GET  /                               the page: a form, the jobs and the queues
//	GET  /sample.jpg                     the built-in picture
//	GET  /jobs/{id}                      the page of a job
//	POST /jobs                           a new job: picture (a file) or builtin=1, tile, scale, slices, tint, reuse
//	GET  /jobs/{id}/events               server-sent events: the job, whenever it changes
//	GET  /jobs/{id}/original             the picture, upright, at most 2048 pixels a side (JPEG)
//	GET  /jobs/{id}/slices/{i}           preview of a stored slice, at most 2048 pixels a side (JPEG)
//	GET  /jobs/{id}/mosaic               the mosaic, to be saved
//	GET  /jobs/{id}/zoom                 the levels of the zoom (JSON), largest first
//	GET  /jobs/{id}/zoom/{level}/{x}/{y} one square of a level (JPEG)
//	GET  /jobs/{id}/cells/{x}/{y}        the photograph in a cell (JSON): name, preview
//	GET  /jobs/{id}/tiles/{n}            the photograph of a tile, at most 512 pixels a side (JPEG)
//	POST /jobs/{id}/delete               deletes a job
//	GET  /events                         server-sent events: the queues and processors
//	POST /queues/{name}/redrive          sends the poison messages of a queue back to it
//	POST /processors/{id}/kill           kills a processor
//	POST /faults                         kind=busy: the queue server answers 503; slow: slices take seconds; on=0 ends it;
//	                                     damage: a slice of the newest job is overwritten
//	GET  /static/…                       style and script
//
// A client that accepts text/html gets pages and redirects, any other JSON; an error is {"error":"…"} there.
//
// # Security
//
// Package webpage refuses requests of foreign pages and under foreign names. Nothing that a user sends is used as
// the name of a file. A transfer that is slower than 20 kB a second ends.
//
// # Files
//
// Everything is kept in one folder: a folder for each job with its record, picture, layout and
// mosaic, and the tiles of the jobs for the zoom. Files are replaced by a rename, so a kill leaves
// the old one or the new one. After a restart, jobs that were not finished continue. The page draws
// its views of a mosaic from the layout and the tiles.
package web
