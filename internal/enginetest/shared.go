package enginetest

import (
	"errors"
	"os"
	"sync"
)

// A Shared server is one for all tests of a package that do it no harm. The first
// that asks for it starts it; TestMain ends it.
type Shared[S sharable[S]] struct {
	// Variable is of the environment. If it has the URL of a server, that one
	// serves those who need no more than a URL.
	Variable string

	Start func(TB) S

	once   sync.Once
	scope  Scope
	server S
}

// A sharable server has a URL, and a likeness that reports to a test instead of to
// its owner.
type sharable[S any] interface {
	URL() string
	For(TB) S
}

// URL names the server, or the one that the environment does.
func (s *Shared[S]) URL(t TB) string {
	t.Helper()
	if given := os.Getenv(s.Variable); given != "" {
		return given
	}
	return s.Server(t).URL()
}

// Server is the server itself, whatever the environment says.
func (s *Shared[S]) Server(t TB) S {
	t.Helper()
	s.once.Do(func() {
		<-s.scope.begin(func() { s.server = s.Start(&s.scope) })
	})
	if err := s.scope.failure(); errors.Is(err, ErrSkipped) {
		t.Skipf("%v", err)
	} else if err != nil {
		t.Fatalf("the server that tests share: %v", err)
	}
	return s.server.For(t)
}

// End stops the server, if it was started, and reports what has gone wrong with
// it.
func (s *Shared[S]) End() error {
	s.scope.End()
	if err := s.scope.failure(); !errors.Is(err, ErrSkipped) {
		return err
	}
	return nil
}
