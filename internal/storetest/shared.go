package storetest

import (
	"errors"
	"os"
	"sync"
)

// A Shared server serves all tests of a package that do not change its settings
// or stop it. The first test that needs the server starts it; TestMain ends it.
type Shared[S sharable[S]] struct {
	// Variable names an environment variable. If it is set to the URL of a
	// server, [Shared.URL] returns that URL.
	Variable string

	Start func(TB) S

	once   sync.Once
	scope  Scope
	server S
}

// A sharable server has a URL and can be copied for a test. The copy reports
// failures to the test instead of to its owner.
type sharable[S any] interface {
	URL() string
	For(TB) S
}

// URL returns the URL from the environment, or that of the shared server.
func (s *Shared[S]) URL(t TB) string {
	t.Helper()
	if given := os.Getenv(s.Variable); given != "" {
		return given
	}
	return s.Server(t).URL()
}

// Server returns the shared server, ignoring the environment.
func (s *Shared[S]) Server(t TB) S {
	t.Helper()
	s.once.Do(func() {
		<-s.scope.begin(func() { s.server = s.Start(&s.scope) })
	})
	if err := s.scope.failure(); errors.Is(err, ErrSkipped) {
		t.Skipf("%v", err)
	} else if err != nil {
		t.Fatalf("shared server: %v", err)
	}
	return s.server.For(t)
}

// End stops the server if it was started and returns its first failure, except
// [ErrSkipped].
func (s *Shared[S]) End() error {
	s.scope.End()
	if err := s.scope.failure(); !errors.Is(err, ErrSkipped) {
		return err
	}
	return nil
}
