package group

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/sema-go/sema"
)

// runUnder calls fn, in a context that ends when p is lost. It reports the result, even if
// fn panics or ends its goroutine. The goroutine survives a panic.
func runUnder(ctx context.Context, p sema.Permit, fn func(ctx context.Context) error, to reporter) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if value := recover(); value != nil {
			to.ended(nil, &Panic{Value: value, Stack: debug.Stack()})
		} else {
			to.ended(errGoexit, nil)
		}
	}()
	err := call(ctx, p, fn)
	returned = true
	to.ended(err, nil)
}

// A reporter receives how a function has ended.
type reporter interface {
	ended(err error, panicked *Panic)
}

// call calls fn, in a context that ends when the permit is lost.
func call(ctx context.Context, p sema.Permit, fn func(ctx context.Context) error) error {
	if p.Lost() == nil {
		return fn(ctx)
	}
	ctx, cancel := p.Context(ctx)
	defer cancel()
	err := fn(ctx)
	if lost := p.Err(); err == nil {
		err = lost
	}
	return err
}

var errGoexit = errors.New("group: a function or a sequence ended its goroutine (runtime.Goexit)")

// A Panic is the value of a panic of a function, which surfaces in the goroutine that
// waits for it.
type Panic struct {
	Value any    // of the panic
	Stack []byte // of the function
}

// Error returns the value and the stack.
func (p *Panic) Error() string {
	return fmt.Sprintf("%v\n\nin a function of package group:\n%s", p.Value, p.Stack)
}

// Unwrap returns the value if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}
