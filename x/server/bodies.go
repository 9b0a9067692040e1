package server

import (
	"errors"
	"io"
	"net/http"

	"connectrpc.com/connect"
)

const (
	// freeBody is how many bytes of a request's body count for nothing: most are
	// shorter, and the number of connections bounds them.
	freeBody = 64 << 10
	// maxBodies bounds the bytes beyond that of all requests that are under way. A
	// principal has half of it.
	maxBodies = 64 << 20
)

// A meteredBody counts what a request of an RPC has sent for the caller, until the
// request has ended: many large requests that never end would exhaust the memory.
type meteredBody struct {
	io.ReadCloser
	accounts *accounts
	account  *account
	header   http.Header // of the response
	read     int64
	counted  int64
	over     bool
}

// Read implements [io.Reader].
func (b *meteredBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	more := b.read - freeBody - b.counted
	if more <= 0 {
		return n, err
	}
	b.counted += more
	mine, everyones := b.account.bodies.Add(more), b.accounts.bodies.Add(more)
	if mine > maxBodies/2 || everyones > maxBodies {
		b.header.Set("Connection", "close") // the rest is not read; HTTP/2 ignores it
		if !b.over {
			b.over = true
			b.accounts.service.counted.limited.WithLabelValues("bodies").Inc()
		}
		b.accounts.service.journal.warn("limit bodies", "limit reached", "limit", "large requests", "principal", b.account.principal, "bytes", mine)
		return n, connect.NewError(connect.CodeResourceExhausted, errors.New("too many large requests are under way: send smaller ones, or fewer at a time"))
	}
	return n, err
}

// ended gives back what was counted.
func (b *meteredBody) ended() {
	b.account.bodies.Add(-b.counted)
	b.accounts.bodies.Add(-b.counted)
}
