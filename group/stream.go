package group

import (
	"context"
	"iter"
	"runtime/debug"
	"sync"

	"github.com/sema-go/sema"
)

// streamAhead is how many results of a Stream may wait for the loop that takes them.
const streamAhead = 64

// Stream calls fn for each value in goroutines, as many at a time as gate admits, and
// yields the results in the order of seq, each as soon as it and those before it are
// known:
//
//	for page, err := range group.Stream(ctx, gate, urls, fetch) { … }
//
// The error of a function is yielded in its place, and the loop decides whether to go on.
// To break stops everything: the loop ends when all functions that had started have
// returned. If ctx ends or gate rejects a call, that error is the last that is yielded. A
// slow loop holds no permits: functions are at most 64 results ahead of it. So no more than
// about 64 run at once, however many gate admits. seq runs in a goroutine of its own.
func Stream[T, R any](ctx context.Context, gate sema.Gate, seq iter.Seq[T], fn func(ctx context.Context, v T) (R, error)) iter.Seq2[R, error] {
	return func(yield func(R, error) bool) {
		s := &stream[T, R]{gate: gate, fn: fn, results: make(chan *result[R], streamAhead)}
		s.ctx, s.cancel = context.WithCancel(ctx)
		defer s.stop() // also if yield panics
		s.running.Go(func() { s.produce(seq) })
		for r := range s.results {
			<-r.done
			if r.panicked != nil {
				panic(r.panicked)
			}
			if !yield(r.value, r.err) {
				return
			}
		}
	}
}

// A stream is a Stream in progress. Its producer takes values, and starts a function for
// each.
type stream[T, R any] struct {
	ctx     context.Context
	cancel  context.CancelFunc
	gate    sema.Gate // nil: no bound
	fn      func(ctx context.Context, v T) (R, error)
	results chan *result[R] // in order; closed by the producer
	running sync.WaitGroup  // the producer and the functions
}

// A result is what a function will have returned.
type result[R any] struct {
	done     chan struct{} // closed when the rest is set
	value    R
	err      error
	panicked *Panic
}

// ended implements reporter.
func (r *result[R]) ended(err error, panicked *Panic) {
	r.err, r.panicked = err, panicked
	close(r.done)
}

// produce takes values from seq until the context ends or the gate rejects a call. A
// result is put into the channel before its permit is acquired, so that no permit is held
// while the channel is full.
func (s *stream[T, R]) produce(seq iter.Seq[T]) {
	defer close(s.results)
	returned := false
	defer func() {
		if returned {
			return
		}
		if value := recover(); value != nil {
			s.next().ended(nil, &Panic{Value: value, Stack: debug.Stack()})
		} else {
			s.next().ended(errGoexit, nil)
		}
	}()
	for v := range seq {
		r := s.next()
		p, err := s.acquire()
		if err != nil {
			r.ended(err, nil)
			break
		}
		s.running.Go(func() {
			defer p.Release()
			runUnder(s.ctx, p, func(ctx context.Context) (err error) {
				r.value, err = s.fn(ctx, v)
				return err
			}, r)
		})
	}
	returned = true
}

func (s *stream[T, R]) acquire() (sema.Permit, error) {
	if s.gate != nil {
		return s.gate.Acquire(s.ctx, 1)
	}
	return sema.Permit{}, context.Cause(s.ctx)
}

// next puts a result into the channel.
func (s *stream[T, R]) next() *result[R] {
	r := &result[R]{done: make(chan struct{})}
	s.results <- r
	return r
}

// stop ends everything and waits for it. It empties the channel, at which the producer may
// wait.
func (s *stream[T, R]) stop() {
	s.cancel()
	for range s.results {
	}
	s.running.Wait()
}
