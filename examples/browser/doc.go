// Package browser tests the page of the mosaic program in Chromium. It is a module of its own, so that nobody else
// depends on the driver of the browser.
//
// The tests start the program that they build from the folder above. Without Chromium they are skipped, unless
// MILLRACE_REQUIRE contains chromium. CHROMIUM names another executable. With MILLRACE_SCREENSHOTS set to a folder,
// pictures of the page are written there.
package browser
