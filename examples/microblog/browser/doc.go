// Package browser tests the pages of the microblog in Chromium. It is a module of its own, so that nobody else
// depends on the driver of the browser.
//
// The test starts the program that it builds from the folder above. Without Chromium it is skipped, unless
// MILLRACE_REQUIRE contains chromium. CHROMIUM names another executable. With MILLRACE_SCREENSHOTS set to a folder,
// pictures of the pages are written there.
package browser
