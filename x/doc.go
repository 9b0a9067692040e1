// Package x is the root of the rooms that link somebody's client library:
// engines for fleet semaphores, exporters and adapters, and the server. It
// exports nothing itself. A room here can become a module of its own without a
// change of its import path.
package x
