// Package azuritetest runs Azurite, Microsoft's emulator of Azure Storage, with its queue, its blob
// or its table service for tests.
//
// Azurite is looked up in the environment variable AZURITE (the path of an azurite or
// azurite-queue executable, azurite-blob and azurite being beside it), then on PATH, then in npm's cache
// with npx. It is never
// downloaded. Without it a test is skipped with a message, or fails if MILLRACE_REQUIRE
// contains azurite, so that CI always compares with the real protocol.
//
// It also finds the other programs that tests run, such as nginx and Microsoft's clients for JavaScript
// and Python, under the same rule.
//
// # Concurrency and shutdown
//
// The tests of one test binary share one Azurite of each service and use different names of
// queues, containers and tables. It runs in its own process group; [Stop] in TestMain ends the group, and a watchdog process in the
// group ends it if the test binary dies first.
//
// # Cost
//
// Starting takes about a second. Azurite becomes slow with the number of messages in all
// queues: keep fewer than a thousand, and drop queues after use.
package azuritetest
