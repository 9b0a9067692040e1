package rate

import (
	"context"
	"errors"
	"io"

	"github.com/sema-go/sema"
)

// Reader returns a reader that reads from r at the rate of a gate whose permits are bytes.
// It reads at most the burst at a time. What it has acquired and not read is refunded. Read
// fails when ctx ends.
func Reader(ctx context.Context, r io.Reader, bytes *Gate) io.Reader {
	return &reader{ctx, r, bytes}
}

type reader struct {
	ctx   context.Context
	from  io.Reader
	bytes *Gate
}

// Read implements [io.Reader].
func (r *reader) Read(p []byte) (int, error) {
	permit, err := r.bytes.acquirePiece(r.ctx, len(p))
	if err != nil {
		return 0, err
	}
	n, err := r.from.Read(p[:permit.Weight()])
	r.bytes.Settle(permit, int64(n))
	return n, err
}

// Writer returns a writer that writes to w at the rate of a gate whose permits are bytes, in
// pieces of at most the burst. What it has acquired and not written is refunded. Write fails
// when ctx ends.
func Writer(ctx context.Context, w io.Writer, bytes *Gate) io.Writer {
	return &writer{ctx, w, bytes}
}

type writer struct {
	ctx   context.Context
	to    io.Writer
	bytes *Gate
}

// Write implements [io.Writer].
func (w *writer) Write(p []byte) (written int, err error) {
	for len(p) > 0 && err == nil {
		permit, rejected := w.bytes.acquirePiece(w.ctx, len(p))
		if rejected != nil {
			return written, rejected
		}
		piece := p[:permit.Weight()]
		var n int
		n, err = w.to.Write(piece)
		w.bytes.Settle(permit, int64(n))
		written += n
		p = p[n:]
		if err == nil && n < len(piece) {
			err = io.ErrShortWrite
		}
	}
	return written, err
}

// acquirePiece acquires up to n bytes: as many as the burst allows, also if it becomes less
// during the wait.
func (g *Gate) acquirePiece(ctx context.Context, n int) (sema.Permit, error) {
	for {
		_, _, burst := g.Rate()
		permit, err := g.Acquire(ctx, min(int64(n), burst))
		if !errors.Is(err, sema.ErrTooLarge) || ctx.Err() != nil {
			return permit, err
		}
	}
}
