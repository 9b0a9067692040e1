// Package remotestore stores fleet semaphores in the store of a sema service, which it
// reaches over the network. Use it for programs that must not connect to Redis,
// PostgreSQL or etcd themselves, or if the store is an SQLite file on another machine. A
// program that can reach the store saves a round trip by using it directly. With this
// package imported, [fleet.Open] accepts
//
//	sema://host:7362,other:7362?token_file=/run/secrets/sema
//	semas://host?ca=/etc/sema/ca.pem&cert=client.pem&key=client.key
//
// The first form uses HTTP/2 without TLS and without an upgrade, the second uses TLS. The
// default port is 7362. The parameters are
//
//	hosts                 further servers; they may be IPv6 addresses
//	token or token_file   the token of this program, or the file that contains it;
//	                      default: the environment variable SEMA_TOKEN, if set
//	ca                    the authority that issues the servers' certificates;
//	                      default: those that the system trusts
//	cert, key             the client certificate
//	open                  check (default): the service must be reachable when the
//	                      store is opened; lazy: the first call connects
//
// Without TLS the token can be read on the network. Use sema:// only on loopback and in
// networks that you trust.
//
// # Guarantees
//
// The guarantees are those of the store behind the service. A server keeps no state of
// its own, so several servers with one store form one service. All calls of a [Store] go
// to one server. They go to the next server
//
//   - at once if connections are refused or break;
//   - after a second without a reply, as soon as the deadline of a call passes;
//   - after three and a half seconds if a connection is lost without notice.
//
// Holders rely on their leases for two thirds of a TTL. That leaves enough time for a
// failover with the default TTL of 15s, and possibly not with a TTL below 5s.
//
// If a reply is lost, batches, inspections and lists are sent again. A repeated batch is
// applied only once. The caller repeats the opening of a session, and a session that was
// opened without a reply expires. A command of an administrator is not repeated, since it
// may have been applied: the error states that, and is [sema.ErrUnavailable]. A request
// that was certainly not sent is always sent to another server.
//
// Errors match those of the store for [errors.Is], and have the same text. They never
// contain the token. If the service rejects the token, or denies an operation to it, the
// error is [io/fs.ErrPermission] and [fleet.FaultAccess], not [sema.ErrUnavailable].
// [sema.Hint] returns what to do about the token.
//
// # Notifications
//
// Each call of [Store.Listen] uses one stream. The server sends a heartbeat every few
// seconds. The client connects to another server after three missing heartbeats. From
// time to time the server ends the stream, and the client begins another one. In this way
// the server notices clients that are gone, even behind a proxy. A client that begins
// another stream checks all semaphores that it uses for missed changes.
package remotestore
