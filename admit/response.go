package admit

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// A response is a ResponseWriter that notes the status, and bounds how long a write takes.
type response struct {
	http.ResponseWriter
	status  int
	written bool
	bound   *bound      // nil: reads and writes take as long as they take
	broken  atomic.Bool // a read or a write took too long or failed; the body may be read by another goroutine
}

// clientGone reports whether the client went away or is too slow, which is no failure of the
// service.
func (w *response) clientGone(ctx context.Context) bool {
	return w.broken.Load() || errors.Is(ctx.Err(), context.Canceled)
}

// check notes an error of the connection. Errors of the handler are none.
func (w *response) check(err error) {
	switch {
	case err == nil, err == io.EOF:
	case errors.Is(err, http.ErrBodyNotAllowed), errors.Is(err, http.ErrContentLength), errors.Is(err, http.ErrHijacked),
		errors.Is(err, http.ErrBodyReadAfterClose), errors.Is(err, errors.ErrUnsupported):
	default:
		w.broken.Store(true)
	}
}

// WriteHeader implements [http.ResponseWriter].
func (w *response) WriteHeader(status int) {
	if !w.written && status >= 200 { // 1xx are no final status
		w.status, w.written = status, true
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *response) Write(p []byte) (n int, err error) {
	w.written = true
	w.bound.write(func() { n, err = w.ResponseWriter.Write(p) })
	w.check(err)
	return n, err
}

// ReadFrom implements [io.ReaderFrom], so that files are sent without a copy. With a bound
// on writes it copies, since the bound is that of each write.
func (w *response) ReadFrom(r io.Reader) (int64, error) {
	w.written = true
	if from, ok := w.ResponseWriter.(io.ReaderFrom); ok && w.bound == nil {
		n, err := from.ReadFrom(r)
		w.check(err)
		return n, err
	}
	return io.Copy(writerOnly{w}, r)
}

// A writerOnly hides ReadFrom from io.Copy.
type writerOnly struct{ io.Writer }

// Flush implements [http.Flusher].
func (w *response) Flush() { _ = w.FlushError() }

// FlushError flushes for [http.ResponseController], which needs the error.
func (w *response) FlushError() (err error) {
	w.written = true
	w.bound.write(func() { err = http.NewResponseController(w.ResponseWriter).Flush() })
	w.check(err)
	return err
}

// Unwrap returns the writer of the server, for [http.ResponseController].
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// SetReadDeadline implements that of [http.ResponseController].
func (w *response) SetReadDeadline(at time.Time) error {
	w.bound.setRead(at)
	return http.NewResponseController(w.ResponseWriter).SetReadDeadline(at)
}

// SetWriteDeadline implements that of [http.ResponseController].
func (w *response) SetWriteDeadline(at time.Time) error {
	w.bound.setWrite(at)
	return http.NewResponseController(w.ResponseWriter).SetWriteDeadline(at)
}

// end returns the connection to the server.
func (w *response) end() { w.bound.end() }

// writer returns the response with the abilities of the connection.
func (w *response) writer() http.ResponseWriter {
	if _, ok := w.ResponseWriter.(http.Hijacker); ok {
		return hijackable{w}
	}
	return w
}

// A hijackable is a response whose connection can be taken over.
type hijackable struct{ *response }

// Hijack implements [http.Hijacker]. The deadlines of a connection that is taken over are
// those of its new owner.
func (w hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := w.ResponseWriter.(http.Hijacker).Hijack()
	if err == nil {
		w.bound.leave()
	}
	return conn, buffered, err
}

// A slowBody is the body of a request, with a bound on how long a read may take.
type slowBody struct {
	io.ReadCloser
	response *response
}

// Read implements [io.Reader].
func (b *slowBody) Read(p []byte) (n int, err error) {
	b.response.bound.read(func() { n, err = b.ReadCloser.Read(p) })
	b.response.check(err)
	return n, err
}
