// Package x is the root of the module for packages that link third-party client
// libraries: stores for fleet semaphores, exporters and adapters, and the server. It
// exports nothing itself. A package below it can become a module of its own without a
// change of its import path.
package x
