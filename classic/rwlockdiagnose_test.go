package classic_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/classic"
)

func TestRWLock_ReportsEventsByClass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		l := classic.NewRWLock(classic.FairRW, sema.Name("config"), sema.Observe(&j))
		held := mustAcquire(t, l.Reader(), 1)
		j.want(t, "read acquired")
		w := acquiring(t.Context(), l.Writer(), 1)
		j.want(t, "write queued", "write exhausted")
		held.Release()
		p := w.want(t)
		got := j.take() // of two goroutines, in either order
		slices.Sort(got)
		if want := []string{"read exhausted", "read released", "write acquired"}; !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		p.Release()
		st := l.Stats()
		if st.Readers.Acquired != 1 || st.Writers.Acquired != 1 || st.Writers.Waited != 1 || st.Readers.Free != sema.MaxCapacity || st.Writers.Free != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// deadlocks returns the reports of deadlocks after a second of virtual time.
func deadlocks(j *journal) (reports []string) {
	time.Sleep(2 * time.Second)
	synctest.Wait()
	for _, e := range j.find(sema.EventDeadlocked) {
		reports = append(reports, e.Report)
	}
	return reports
}

func TestRWLock_AReaderThatWantsToWriteIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		l := classic.NewRWLock(classic.PreferReaders, sema.Name("upgraded"), sema.Observe(&j), sema.Diagnose(sema.DiagnoseFull))
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			p, err := l.Reader().Acquire(ctx, 1)
			if err != nil {
				t.Error(err)
			}
			defer p.Release()
			if _, err := l.Writer().Acquire(ctx, 1); err == nil {
				t.Error("a writer beside a reader")
			}
		}()
		if found := deadlocks(&j); len(found) != 1 || !strings.Contains(found[0], `"upgraded"`) {
			t.Errorf("reports %q, want the deadlock", found)
		}
		cancel()
	})
}

// TestRWLock_ReadersThatWaitBehindAWriterTheyBlockAreReported: each of two readers wants to read
// once more, and a writer waits in between.
func TestRWLock_ReadersThatWaitBehindAWriterTheyBlockAreReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		l := classic.NewRWLock(classic.FairRW, sema.Name("recursive"), sema.Observe(&j), sema.Diagnose(sema.DiagnoseFull))
		ctx, cancel := context.WithCancel(t.Context())
		again := make(chan struct{})
		for range 2 {
			go func() {
				p, err := l.Reader().Acquire(ctx, 1)
				if err != nil {
					t.Error(err)
				}
				defer p.Release()
				<-again
				if _, err := l.Reader().Acquire(ctx, 1); err == nil {
					t.Error("a reader overtook a writer")
				}
			}()
		}
		synctest.Wait()
		w := acquiring(ctx, l.Writer(), 1)
		w.wantWaiting(t)
		close(again)
		if found := deadlocks(&j); len(found) != 1 {
			t.Errorf("reports %q, want the deadlock once", found)
		}
		cancel()
		w.wantErr(t, context.Canceled)
	})
}

func TestRWLock_TakesPartInDiagnostics(t *testing.T) {
	t.Parallel()
	var j journal
	l := classic.NewRWLock(classic.FairRW, sema.Name("diagnosed lock"), sema.Observe(&j), sema.Diagnose(sema.DiagnoseFull))
	other := sema.New(1, sema.Name("diagnosed semaphore"), sema.Observe(&j), sema.Diagnose(sema.DiagnoseFull))
	p := mustAcquire(t, l.Writer(), 1)
	found := false
	for _, h := range sema.Holders() {
		if h.Name == "diagnosed lock" {
			found = strings.Contains(h.Site, "classic/helpers_test.go") || strings.Contains(h.Stack, "TestRWLock_TakesPartInDiagnostics")
		}
	}
	if !found {
		t.Error("Holders does not list the writer")
	}
	p.Release()
	do := func(a, b sema.Gate) {
		err := sema.Do(t.Context(), a, 1, func(ctx context.Context) error {
			return sema.Do(ctx, b, 1, func(context.Context) error { return nil })
		})
		wantErr(t, err, nil)
	}
	do(l.Reader(), other)
	do(other, l.Writer())
	if n := len(j.find(sema.EventInverted)); n != 1 {
		t.Errorf("%d inverted orders reported, want 1", n)
	}
}
