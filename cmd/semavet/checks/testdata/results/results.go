// Package results ignores the results of TryAcquire.
package results

import "github.com/sema-go/sema"

func ignored(w *sema.Weighted, s *sema.Spin) {
	w.TryAcquire(1)     // want `the result of w.TryAcquire is ignored: if it is false, nothing was acquired, and a Release would release what others hold; use it as a condition`
	_ = w.TryAcquire(1) // want `the result of w.TryAcquire is ignored`
	go s.TryAcquire()   // want `the result of s.TryAcquire is ignored`
	w.TryAcquire(-1)    // panics
	if w.TryAcquire(1) {
		w.Release(1)
	}
	ok := s.TryAcquire()
	results[0] = w.TryAcquire(1)
	println(ok)
}

var results = []bool{false}
