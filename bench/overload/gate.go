package overload

import (
	"context"
	"errors"
	"slices"
)

// An Ending is how an admitted request ended.
type Ending uint8

const (
	OK   Ending = iota
	Late        // after its deadline
	Left        // its client had left
)

var errRejected = errors.New("rejected")

// A Gate is what all implementations are adapted to.
type Gate struct {
	// Admit admits a request, or returns why not. done ends it.
	Admit func(ctx context.Context, class string, cost int64) (done func(Ending), err error)
	// InUse returns how many permits the implementation counts as held. nil: it does not
	// report it, so it is found out by acquiring as many as there are.
	InUse func() int64
	// Load reports to the implementation which part of the slots is in use. nil: it does not use that.
	Load func(busy float64)
	// Stop ends the goroutines of the implementation. nil: it has none.
	Stop func()
}

// An Implementation is a library with its recommended settings.
type Implementation struct {
	Name string
	Ours bool
	// Adapts: it measures how many requests the service can process. All others are given the number.
	Adapts bool
	// Unbounded: it has no bound of the requests in flight that could be exceeded.
	Unbounded bool
	// Unweighted: it counts a wide request as one.
	Unweighted bool
	Make       func(classes []Class) Gate
}

// Implementations returns all of them, ours first.
func Implementations() []Implementation { return append(ours(), rivals()...) }

// fixed returns the implementations that are given the capacity, and BBR, which has no such
// setting.
func fixed() []Implementation {
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
