// Package answers does not look at what TryAcquire says.
package answers

import "github.com/sema-go/sema"

func ignored(w *sema.Weighted, s *sema.Spin) {
	w.TryAcquire(1)     // want `the answer of w.TryAcquire is ignored: if it was false nothing was acquired, and a Release gives back what others hold; use it as a condition`
	_ = w.TryAcquire(1) // want `the answer of w.TryAcquire is ignored`
	go s.TryAcquire()   // want `the answer of s.TryAcquire is ignored`
	if w.TryAcquire(1) {
		w.Release(1)
	}
	ok := s.TryAcquire()
	answers[0] = w.TryAcquire(1)
	println(ok)
}

var answers = []bool{false}
