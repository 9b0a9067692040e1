package overload

import (
	"context"
	"errors"
	"slices"
)

// An Outcome is how an admitted request ended.
type Outcome uint8

const (
	OK   Outcome = iota
	Late         // after its deadline
	Left         // its client had left
)

var errRejected = errors.New("rejected")

// A Gate is what all implementations are adapted to.
type Gate struct {
	// Admit admits a request, or returns why not. done ends it.
	Admit func(ctx context.Context, class string, cost int64) (done func(Outcome), err error)
	// InUse returns how many permits the implementation counts as held. nil: it does not
	// tell, so it is found out by asking for as many as there are.
	InUse func() int64
	// Load tells the implementation which part of the slots is in use. nil: it does not ask.
	Load func(busy float64)
	// Stop ends the goroutines of the implementation. nil: it has none.
	Stop func()
}

// An Implementation is a library with its recommended settings.
type Implementation struct {
	Name string
	Ours bool
	// Adapts: it measures how many requests the service can process. All others are told.
	Adapts bool
	// Unbounded: it has no bound of the requests in flight that could be exceeded.
	Unbounded bool
	// Unweighted: it counts a wide request as one.
	Unweighted bool
	Make       func(classes []Class) Gate
}

// Implementations returns all of them, ours first.
func Implementations() []Implementation { return append(ours(), rivals()...) }

// told returns the implementations that are told the capacity, and BBR, which cannot be told
// anything.
func told() []Implementation {
	return slices.DeleteFunc(Implementations(), func(i Implementation) bool { return i.Adapts && !i.Unbounded })
}

// adapting returns the implementations that measure the capacity.
func adapting() []Implementation {
	return slices.DeleteFunc(Implementations(), func(i Implementation) bool { return !i.Adapts })
}

// ByName returns the implementation of a name.
func ByName(name string) Implementation {
	all := Implementations()
	i := slices.IndexFunc(all, func(i Implementation) bool { return i.Name == name })
	if i < 0 {
		panic("overload: no implementation " + name)
	}
	return all[i]
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
