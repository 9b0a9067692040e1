package sema_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/sema-go/sema"
)

func TestPermit_ReleaseCountsOnceAmongAllCopies(t *testing.T) {
	s := sema.New(100)
	for range 500 {
		p := mustAcquire(t, s, 3)
		copies := []sema.Permit{p, p, p, p}
		var racing sync.WaitGroup
		for _, c := range copies {
			racing.Go(c.Release)
		}
		racing.Wait()
		wantStats(t, s, 0, 0)
	}
}

// TestPermit_ReleaseFirstIsTrueOnce races all kinds of permits.
func TestPermit_ReleaseFirstIsTrueOnce(t *testing.T) {
	observed := sema.New(8, sema.Observe(sema.ObserverFunc(func(sema.Event) {})))
	diagnosed := sema.New(8, sema.Diagnose(sema.DiagnoseFull))
	for name, acquire := range map[string]func() sema.Permit{
		"semaphore": func() sema.Permit { return mustAcquire(t, sema.New(8), 3) },
		"observed":  func() sema.Permit { return mustAcquire(t, observed, 3) },
		"diagnosed": func() sema.Permit { return mustAcquire(t, diagnosed, 3) },
		"striped":   func() sema.Permit { return mustAcquire(t, sema.NewStriped(8), 1) },
		"lease":     func() sema.Permit { return sema.NewPermit(3, &countedLease{}) },
	} {
		for range 200 {
			p := acquire()
			var first atomic.Int64
			var racing sync.WaitGroup
			for range 4 {
				racing.Go(func() {
					if p.ReleaseFirst() {
						first.Add(1)
					}
				})
			}
			racing.Wait()
			if first.Load() != 1 || p.Held() {
				t.Fatalf("%s: %d calls were the first", name, first.Load())
			}
		}
	}
	wantStats(t, observed, 0, 0)
	wantStats(t, diagnosed, 0, 0)
	if (sema.Permit{}).ReleaseFirst() {
		t.Error("the zero permit was released")
	}
}

// A countedLease fails a test that releases it twice.
type countedLease struct{ released atomic.Int64 }

func (l *countedLease) Release() {
	if l.released.Add(1) > 1 {
		panic("released twice")
	}
}

func TestPermit_ManyHeldAtOnceAreDistinct(t *testing.T) {
	s := sema.New(1000)
	permits := make([]sema.Permit, 1000)
	for i := range permits {
		permits[i] = mustAcquire(t, s, 1)
	}
	for i, p := range permits {
		p.Release()
		p.Release()
		wantStats(t, s, int64(len(permits)-i-1), 0)
	}
}

func TestPermit_ZeroValueIsInert(t *testing.T) {
	var p sema.Permit
	p.Release()
	if p.Held() || p.Weight() != 0 || p.Lost() != nil || p.Err() != nil || p.Lease() != nil {
		t.Error("the zero permit is not inert")
	}
	_, _, err := p.Split(1)
	wantErr(t, err, sema.ErrInvalid)
	ctx, cancel := p.Context(t.Context())
	cancel()
	wantErr(t, context.Cause(ctx), context.Canceled)
	if len(sema.Held(ctx)) != 0 {
		t.Error("the context carries the zero permit")
	}
}

func TestAcquire_WeightZeroIsGrantedWithoutWaiting(t *testing.T) {
	s := sema.New(1)
	held := mustAcquire(t, s, 1)
	p := mustAcquire(t, s, 0)
	if p.Held() {
		t.Error("a permit of weight 0 is not inert")
	}
	held.Release()
	p.Release()
	wantStats(t, s, 0, 0)
}

func TestPermit_SplitMakesTheOriginalInert(t *testing.T) {
	s := sema.New(5)
	whole := mustAcquire(t, s, 5)
	for _, bad := range []int64{-1, 0, 5, 6} {
		_, _, err := whole.Split(bad)
		wantErr(t, err, sema.ErrInvalid)
	}
	first, rest, err := whole.Split(2)
	wantErr(t, err, nil)
	if first.Weight() != 2 || rest.Weight() != 3 || whole.Held() {
		t.Errorf("split into %d and %d, original held: %v", first.Weight(), rest.Weight(), whole.Held())
	}
	whole.Release()
	wantStats(t, s, 5, 0)
	first.Release()
	wantStats(t, s, 3, 0)
	rest.Release()
	wantStats(t, s, 0, 0)
	_, _, err = rest.Split(1)
	wantErr(t, err, sema.ErrInvalid)
}

func TestPermit_SplitThatRacesReleaseIsAtomic(t *testing.T) {
	s := sema.New(4)
	for range 2000 {
		p := mustAcquire(t, s, 4)
		var racing sync.WaitGroup
		racing.Go(p.Release)
		racing.Go(func() {
			if a, b, err := p.Split(1); err == nil {
				a.Release()
				b.Release()
			}
		})
		racing.Wait()
		wantStats(t, s, 0, 0)
	}
}

func TestDo_ReleasesWhateverHappens(t *testing.T) {
	s := sema.New(1)
	errTest := errors.New("boom")
	wantErr(t, sema.Do(t.Context(), s, 1, func(context.Context) error { return errTest }), errTest)
	wantStats(t, s, 0, 0)
	wantPanic(t, "Do", func() {
		sema.Do(t.Context(), s, 1, func(context.Context) error { panic("boom") })
	})
	wantStats(t, s, 0, 0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		sema.Do(t.Context(), s, 1, func(context.Context) error { runtime.Goexit(); return nil })
	}()
	<-done
	wantStats(t, s, 0, 0)
	wantErr(t, sema.Do(t.Context(), s, 2, nil), sema.ErrTooLarge)
	err := sema.Do(t.Context(), s, 1, func(ctx context.Context) error {
		if held := sema.Held(ctx); len(held) != 1 || held[0].Weight() != 1 {
			t.Errorf("held %v", held)
		}
		return nil
	})
	wantErr(t, err, nil)
}

// A fakeLease is a lease that can be lost, of a gate outside the package.
type fakeLease struct {
	released atomic.Int64
	lost     chan struct{}
	weight   int64
	err      error
}

func newFakeLease(weight int64) *fakeLease {
	return &fakeLease{lost: make(chan struct{}), weight: weight}
}
func (l *fakeLease) Release()              { l.released.Add(1) }
func (l *fakeLease) Lost() <-chan struct{} { return l.lost }
func (l *fakeLease) Err() error {
	select {
	case <-l.lost:
		return sema.ErrLost
	default:
		return nil
	}
}
func (l *fakeLease) Split(n int64) (sema.Lease, sema.Lease, error) {
	if l.err != nil {
		return nil, nil, l.err
	}
	return newFakeLease(n), newFakeLease(l.weight - n), nil
}

type plainLease struct{ released atomic.Int64 }

func (l *plainLease) Release() { l.released.Add(1) }

// A fakeGate grants permits that all have the same lease.
type fakeGate struct {
	name    string
	scope   sema.Scope
	lease   sema.Lease
	err     error
	journal *[]string
}

func (g *fakeGate) Acquire(_ context.Context, n int64) (sema.Permit, error) {
	if g.journal != nil {
		*g.journal = append(*g.journal, g.name)
	}
	if g.err != nil {
		return sema.Permit{}, g.err
	}
	return sema.NewPermit(n, g.lease), nil
}
func (g *fakeGate) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	return g.Acquire(ctx, n)
}
func (g *fakeGate) Name() string      { return g.name }
func (g *fakeGate) Scope() sema.Scope { return g.scope }

func TestNewPermit_KeepsTheRulesOfAPermit(t *testing.T) {
	lease := &plainLease{}
	p := sema.NewPermit(3, lease)
	if !p.Held() || p.Lease() != sema.Lease(lease) || p.Lost() != nil || p.Err() != nil {
		t.Error("the permit does not match its lease")
	}
	_, _, err := p.Split(1)
	wantErr(t, err, sema.ErrInvalid)
	if !p.Held() {
		t.Fatal("a rejected split ended the permit")
	}
	q := p
	p.Release()
	q.Release()
	if n := lease.released.Load(); n != 1 {
		t.Errorf("released %d times", n)
	}
	wantPanic(t, "nil lease", func() { sema.NewPermit(1, nil) })
	wantPanic(t, "negative weight", func() { sema.NewPermit(-1, lease) })

	l := newFakeLease(5)
	whole := sema.NewPermit(5, l)
	l.err = errors.New("store unavailable")
	_, _, err = whole.Split(2)
	wantErr(t, err, l.err)
	l.err = nil
	a, b, err := whole.Split(2)
	wantErr(t, err, nil)
	if a.Weight() != 2 || b.Weight() != 3 || whole.Held() || l.released.Load() != 0 {
		t.Error("the split is wrong or released the lease")
	}
}

func TestPermit_LossEndsItsContextAndDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := newFakeLease(1)
		p := sema.NewPermit(1, lease)
		ctx, cancel := p.Context(t.Context())
		wantErr(t, p.Err(), nil)
		close(lease.lost)
		synctest.Wait()
		wantErr(t, context.Cause(ctx), sema.ErrLost)
		wantErr(t, p.Err(), sema.ErrLost)
		cancel()

		second := newFakeLease(1)
		err := sema.Do(t.Context(), &fakeGate{lease: second}, 1, func(ctx context.Context) error {
			close(second.lost)
			<-ctx.Done()
			return nil
		})
		wantErr(t, err, sema.ErrLost)
		if second.released.Load() != 1 {
			t.Error("not released")
		}

		other, cancelOther := sema.NewPermit(1, newFakeLease(1)).Context(t.Context())
		cancelOther() // ends the goroutine that watches for the loss
		synctest.Wait()
		wantErr(t, context.Cause(other), context.Canceled)
	})
}

func TestPermit_ContextIdentifiesTheHolder(t *testing.T) {
	a, b := sema.New(1), sema.New(2)
	pa := mustAcquire(t, a, 1)
	ctx, cancel := pa.Context(t.Context())
	defer cancel()
	pb := mustAcquire(t, b, 2)
	ctx, cancel = pb.Context(ctx)
	defer cancel()
	held := sema.Held(ctx)
	if len(held) != 2 || held[0] != pa || held[1] != pb {
		t.Errorf("held %v", held)
	}
	pa.Release()
	if held := sema.Held(ctx); len(held) != 1 || held[0] != pb {
		t.Errorf("after release held %v", held)
	}
	pb.Release()
}

// A slowLease lets a test act while it is being split.
type slowLease struct {
	plainLease
	splitting, proceed chan struct{}
	panics             bool
}

func (l *slowLease) Split(int64) (sema.Lease, sema.Lease, error) {
	close(l.splitting)
	<-l.proceed
	if l.panics {
		panic("lease")
	}
	return nil, nil, errors.New("cannot split")
}

func TestPermit_ReleaseDuringARejectedSplitIsNotLost(t *testing.T) {
	for _, panics := range []bool{false, true} {
		l := &slowLease{splitting: make(chan struct{}), proceed: make(chan struct{}), panics: panics}
		p := sema.NewPermit(2, l)
		go func() {
			<-l.splitting
			p.Release()
			close(l.proceed)
		}()
		func() {
			defer func() { recover() }()
			p.Split(1)
		}()
		if n := l.released.Load(); n != 1 || p.Held() {
			t.Errorf("released %d times, held %v", n, p.Held())
		}
		p.Release()
		if n := l.released.Load(); n != 1 {
			t.Errorf("released %d times", n)
		}
	}
}

// A fakeBacking is a backing that can be lost.
type fakeBacking struct{ lost chan struct{} }

func (v fakeBacking) Lost() <-chan struct{} { return v.lost }

func (v fakeBacking) Err() error {
	select {
	case <-v.lost:
		return sema.ErrLost
	default:
		return nil
	}
}

func TestBacked_PermitsAreLostWithTheBacking(t *testing.T) {
	t.Parallel()
	v := fakeBacking{make(chan struct{})}
	for _, level := range []sema.DiagnoseLevel{sema.DiagnoseOff, sema.DiagnoseFull} {
		s := sema.New(4, sema.Backed(v), sema.Diagnose(level))
		p, q, err := mustAcquire(t, s, 3).Split(1)
		wantErr(t, err, nil)
		if p.Backing() != v || q.Lost() != v.Lost() {
			t.Error("the parts do not have the backing of the whole")
		}
		if level == sema.DiagnoseOff {
			wantErr(t, p.Err(), nil)
			close(v.lost)
		}
		wantErr(t, q.Err(), sema.ErrLost)
		p.Release()
		q.Release()
		if in := s.Stats().InUse; in != 0 {
			t.Errorf("%d in use", in)
		}
	}
	if p := mustAcquire(t, sema.New(1), 1); p.Backing() != nil || p.Lost() != nil {
		t.Error("a plain permit has a backing")
	}
}
