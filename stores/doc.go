// Package stores opens blobs and tables at a location: a path on this machine or an Azure storage
// account. A program that takes the location from a setting moves from a laptop to Azure by that
// setting alone. Both kinds of store pass the same conformance suites, blobtest and tabletest.
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # Locations
//
// A location is one of
//
//   - a path, such as "./data": a directory with a folder for each container of blobs, and with all
//     tables in the file tables.db. The directory is created if it does not exist. Blobs and tables
//     may share it. For [OpenTables], a path that ends in ".db" or names a file is that file itself,
//   - a connection string of an account,
//   - "UseDevelopmentStorage=true", Azurite's account on this machine,
//   - the address of an account, such as "https://ACCOUNT.blob.core.windows.net", with or without a
//     shared access signature. The address of another service of the account, as queues have it,
//     is accepted too. An address with a container's or a table's name is of that one alone.
//
// The embedded server, millrace serve, has queues only. Programs that use it keep their blobs and
// tables in a directory. A connection string of the server alone is refused.
//
// # Requests and errors
//
// Opening sends no request. A store in an account fails as packages azureblob and aztable describe:
// a request is repeated for up to two minutes. If UseDevelopmentStorage=true is the location and
// nothing listens there on this machine, it fails within two seconds. Errors come with advice, and never contain a
// key or a signature.
//
// # Durability
//
// A blob that was put and a confirmed change of a table are on disk, or stored by the service. Neither
// a kill nor a power cut undoes them.
//
// # Concurrency and processes
//
// All stores are safe for concurrent use. Any number of processes may use the blobs of a directory
// at the same time; only one process can have its tables open.
//
// # Dependencies
//
// The clients of both services and bbolt are four modules more than a worker with queues on Azure
// compiles. Nothing else in Millrace's library imports this package.
package stores
