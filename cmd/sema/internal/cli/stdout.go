package cli

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
)

// An output is stdout. It records the first error, so that no command exits with 0 after its
// output was lost, also if a library writes it and ignores errors.
type output struct {
	*os.File
	err error
}

// Write implements [io.Writer].
func (o *output) Write(b []byte) (int, error) {
	n, err := o.File.Write(b)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

// WriteString implements [io.StringWriter]: the file's own would bypass Write.
func (o *output) WriteString(s string) (int, error) { return o.Write([]byte(s)) }

// ReadFrom implements [io.ReaderFrom]: the file's own would bypass Write.
func (o *output) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{o}, r)
}

// failure returns the error of lost output, with its exit code, or nil if everything was
// written.
func (o *output) failure() error {
	if o.err == nil {
		return nil
	}
	cause := o.err
	var path *fs.PathError
	if errors.As(cause, &path) {
		cause = path.Err // without "write /dev/stdout"
	}
	return &exit.Error{Code: exit.Output, Err: &outputError{cause}}
}

// An outputError is the error of lost output.
type outputError struct{ cause error }

func (e *outputError) Error() string { return "cannot write the output: " + e.cause.Error() }
func (e *outputError) Unwrap() error { return e.cause }
