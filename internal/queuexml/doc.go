// Package queuexml reads and writes the XML documents of the Azure Queue
// service by hand. The general decoder of encoding/xml costs some 26 µs a
// message, which is most of what a dequeue would cost.
//
// Writing appends to a buffer the caller owns. Any text that XML can carry
// comes back unchanged from a conforming parser, carriage returns included;
// what XML cannot carry is written as U+FFFD, so that a document is always well
// formed.
//
// Reading is strict: UTF-8, no document type, no entity beyond the five of XML
// and character references, no element that does not belong there. There is
// nothing to expand, so the work is linear in the size of the document, which
// the caller bounds before it reads it.
//
// The package keeps no state: everything is safe for concurrent use.
package queuexml
