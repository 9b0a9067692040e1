package registry

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sema-go/sema"
)

// A LoadError lists all problems of a file that was rejected. It wraps [sema.ErrInvalid] if
// the file is at fault, and otherwise the errors of the operations that failed.
type LoadError struct {
	Path     string
	Problems []Problem // by position, at least one
}

// A Problem is one reason why a file was rejected.
type Problem struct {
	Line, Column int    // where, from 1; a column counts characters; 0: the file as a whole
	Text         string // what is wrong, and what is allowed
	Err          error  // what failed; nil: the file is wrong
}

// maxListed bounds the problems that the text of an error lists.
const maxListed = 20

// Error returns all problems in the form path:line:column: text, each in a line.
func (e *LoadError) Error() string {
	if len(e.Problems) == 1 {
		return "registry: " + e.line(e.Problems[0])
	}
	var b strings.Builder
	fmt.Fprintf(&b, "registry: %s: %d problems", e.Path, len(e.Problems))
	for _, p := range e.Problems[:min(len(e.Problems), maxListed)] {
		b.WriteString("\n\t" + e.line(p))
	}
	if more := len(e.Problems) - maxListed; more > 0 {
		fmt.Fprintf(&b, "\n\tand %d more", more)
	}
	return b.String()
}

func (e *LoadError) line(p Problem) string {
	if p.Line == 0 {
		return fmt.Sprintf("%s: %s", e.Path, p.Text)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.Path, p.Line, p.Column, p.Text)
}

// Unwrap returns the errors of what failed, or [sema.ErrInvalid].
func (e *LoadError) Unwrap() (errs []error) {
	for _, p := range e.Problems {
		if p.Err != nil {
			errs = append(errs, p.Err)
		}
	}
	if errs == nil {
		errs = []error{sema.ErrInvalid}
	}
	return errs
}

// Hint returns advice, for [sema.Hint].
func (e *LoadError) Hint() string {
	if errors.Is(e, sema.ErrInvalid) {
		return "correct the file; until then the limits stay as they are"
	}
	return "load the file again when the cause has gone; until then the limits stay as they are"
}

// A report collects the problems of one file.
type report struct {
	data     []byte
	problems []located
}

// A located problem is one at an offset in the file; -1: the file as a whole.
type located struct {
	offset int
	text   string
	err    error
}

// A file of 1 MiB can have many problems, and names and numbers of any length. The bounds
// keep the errors readable, and the time to find them short.
const (
	maxProblems = 1000
	maxPart     = 500 // bytes of a text that a problem quotes
)

func (r *report) add(offset int, format string, args ...any) {
	if len(r.problems) < maxProblems {
		r.fail(offset, nil, format, args...)
	}
}

func (r *report) fail(offset int, err error, format string, args ...any) {
	for i, arg := range args {
		if text, ok := arg.(string); ok && len(text) > maxPart {
			args[i] = strings.ToValidUTF8(text[:maxPart], "") + "…"
		}
	}
	r.problems = append(r.problems, located{offset, fmt.Sprintf(format, args...), err})
}

// err returns the problems as a LoadError, or nil if there are none.
func (r *report) err(path string) *LoadError {
	if len(r.problems) == 0 {
		return nil
	}
	slices.SortFunc(r.problems, func(a, b located) int {
		return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(a.text, b.text))
	})
	e := &LoadError{Path: path}
	at, line, start := 0, 1, 0 // up to where lines are counted, the line there, and its start
	for _, p := range r.problems {
		found := Problem{Text: p.text, Err: p.err}
		if p.offset >= 0 {
			for i := bytes.IndexByte(r.data[at:p.offset], '\n'); i >= 0; i = bytes.IndexByte(r.data[at:p.offset], '\n') {
				at += i + 1
				line, start = line+1, at
			}
			found.Line, found.Column = line, 1+utf8.RuneCount(r.data[start:p.offset])
		}
		e.Problems = append(e.Problems, found)
	}
	return e
}
