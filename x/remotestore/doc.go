// Package remotestore is an engine for fleet semaphores that somebody else has: a
// server of the sema service, over the network. It is for programs that are not to
// reach Redis, PostgreSQL or etcd themselves, or whose engine is a file of SQLite's
// on another machine. Who can reach the engine saves a round trip without it.
// Import it, and [fleet.Open] knows
//
//	sema://host:7362,other:7362?token_file=/run/secrets/sema
//	semas://host?ca=/etc/sema/ca.pem&cert=client.pem&key=client.key
//
// The first is without TLS, and with HTTP/2 from the first byte on; the second with
// TLS. The port is 7362 unless told. Parameters are hosts, servers besides those
// before the ?, which may be written as addresses of IPv6; token or token_file, what
// the service knows this program by (or else the environment variable SEMA_TOKEN has
// it, if there is one); ca, the authority of the servers' certificates, unless the
// system knows it; cert and key, of this program's own certificate; open (check or
// lazy), whether the service has to be there when the store is opened. A token without
// TLS can be read by who listens on the way: keep that to loopback and to networks
// you trust.
//
// # What it promises
//
// What the engine behind the service does. A server keeps nothing of its own, so that
// several of them over one engine are one service. All calls of a store go to one
// server, and to the next when that does not answer: at once if connections are
// refused or break, after a second of silence if callers give up by then, and after
// three and a half of them on a connection that is dead without a word. Holders trust
// in their leases for two thirds of a TTL: with the usual fifteen seconds there is
// time for that, with a TTL below five there may not be.
//
// If an answer is lost, a batch is said again, which is not done twice; so are looks
// and lists. To open a session is tried again by the caller, and the one that nobody
// knows of dies. A command of an administrator is not repeated, since it may have been
// done: the error says so, and is [sema.ErrUnavailable]. What was surely not sent is
// always tried elsewhere.
//
// Errors are what they are at the engine, for [errors.Is], with their text. The token
// is in none of them.
//
// # Hints
//
// A store that listens has one stream. The server sends a sign of life every few
// seconds, and after three that are missing the client goes elsewhere. From time to
// time the server ends the stream, and the client begins another one: so that a server
// knows who is still there, whatever is in between. Whoever listens anew looks at all
// it uses, for what it may have missed.
package remotestore
