// Package azuritetest gives tests an Azurite, Microsoft's emulator of Azure
// Storage, with its queue service running.
//
// Azurite is looked for in the environment variable AZURITE (the path of an
// azurite or azurite-queue executable), then on PATH, then in npm's cache
// through npx. It is never downloaded. Where it is absent the test is skipped,
// saying so; when MILLRACE_REQUIRE names azurite a skip is a failure, so that
// a build machine cannot lose the comparison with the real protocol unnoticed.
//
// # Concurrency and shutdown
//
// One Azurite runs for each test binary and is shared by its tests, which keep
// apart by queue names. It runs in a process group of its own; [Stop] in
// TestMain ends the whole group, and a watcher in the group ends it when the
// test binary dies without getting that far.
//
// # Cost
//
// The start takes about a second. Azurite gets slow with the messages it
// holds, over all queues together: stay below a thousand and drop queues that
// are done with.
package azuritetest
