// Package browser tests the pages of the programs mosaic and microblog in Chromium. It is a module of its own, so that
// nobody else depends on the driver of the browser.
//
// The tests start the programs that they build from the folders beside this one. Without Chromium they are skipped,
// unless MILLRACE_REQUIRE contains chromium. CHROMIUM names another executable. With MILLRACE_SCREENSHOTS set to a
// folder, pictures of the pages are written there.
package browser
