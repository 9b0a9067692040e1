//go:build !386 && !arm && !mips && !mipsle

package posix_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host/posix"
	"github.com/sema-go/sema/internal/proctest"
)

func TestSemaphore_ValueCountsDownAndUp(t *testing.T) {
	t.Parallel()
	s := create(t, 2)
	wantErr(t, s.Wait(t.Context()), nil)
	if !s.TryWait() || s.TryWait() {
		t.Fatal("TryWait failed at 1 or succeeded at 0")
	}
	wantState(t, s, 0, 0)
	wantErr(t, s.Post(), nil)
	wantState(t, s, 1, 0)
}

func TestSemaphore_DoneContextNeverAcquires(t *testing.T) {
	t.Parallel()
	s := create(t, 1)
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := s.Wait(ctx); err != why {
		t.Errorf("error %v, want the unwrapped cause", err)
	}
	wantErr(t, s.Wait(nil), sema.ErrInvalid) //lint:ignore SA1012 it is rejected
	wantState(t, s, 1, 0)
}

func TestSemaphore_PostBeyondTheMaximumFails(t *testing.T) {
	t.Parallel()
	s := create(t, posix.MaxValue-1)
	wantErr(t, s.Post(), nil)
	wantErr(t, s.Post(), sema.ErrOverRelease)
	wantState(t, s, posix.MaxValue, 0)
	wantErr(t, s.Wait(t.Context()), nil)
	wantErr(t, s.Post(), nil)

	_, err := posix.New(posix.MaxValue + 1)
	wantErr(t, err, sema.ErrInvalid)
	_, err = posix.Create(uniqueName(t), 0o600, posix.MaxValue+1, false)
	wantErr(t, err, sema.ErrInvalid)
	_, err = s.Repair(posix.MaxValue + 1)
	wantErr(t, err, sema.ErrInvalid)
}

func TestSemaphore_RepairSetsTheValueAndWakesAll(t *testing.T) {
	t.Parallel()
	all := attachments(t, 3, 0)
	var results []<-chan error
	for i, s := range all {
		results = append(results, startWait(t.Context(), s))
		awaitSleepers(t, s, i+1)
	}
	was, err := all[0].Repair(3)
	if was != 0 || err != nil {
		t.Fatalf("was %d, error %v", was, err)
	}
	for _, r := range results {
		wantErr(t, result(t, r), nil)
	}
	wantState(t, all[0], 0, 0)
	if was, _ := all[0].Repair(7); was != 0 {
		t.Errorf("was %d, want 0", was)
	}
	if was, _ := all[0].Repair(2); was != 7 {
		t.Errorf("was %d, want 7", was)
	}
}

func TestSemaphore_ClosedRejectsAllCalls(t *testing.T) {
	t.Parallel()
	s := create(t, 1)
	again := openAgain(t, s)
	wantErr(t, s.Close(), nil)
	wantErr(t, s.Close(), nil)
	runtime.GC()
	for _, s := range []*posix.Semaphore{s, new(posix.Semaphore)} {
		wantErr(t, s.Wait(t.Context()), sema.ErrClosed)
		wantErr(t, s.Post(), sema.ErrClosed)
		_, err := s.Repair(5)
		wantErr(t, err, sema.ErrClosed)
		if s.TryWait() || s.Value() != 0 || s.Waiters() != 0 {
			t.Error("a closed semaphore has permits, or waiters")
		}
	}
	wantState(t, again, 1, 0)
}

func TestSemaphore_CloseLeavesOthersOpen(t *testing.T) {
	t.Parallel()
	s := create(t, 0)
	again := openAgain(t, s)
	stays := startWait(t.Context(), again)
	awaitSleepers(t, s, 1)
	leaves := startWait(t.Context(), s)
	awaitQueued(t, s, 1)
	s.Close()
	wantErr(t, result(t, leaves), sema.ErrClosed)
	wantErr(t, again.Post(), nil)
	wantErr(t, result(t, stays), nil)
	wantState(t, again, 0, 0)
}

// TestSemaphore_OrdersMemoryAccesses fails under the race detector without raceAcquire
// and raceRelease.
func TestSemaphore_OrdersMemoryAccesses(t *testing.T) {
	t.Parallel()
	s := create(t, 1)
	guarded := 0
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				if err := s.Wait(t.Context()); err != nil {
					t.Error(err)
					return
				}
				guarded++
				s.Post()
			}
		})
	}
	wg.Wait()
	if guarded != 2000 {
		t.Errorf("counter %d, want 2000: two goroutines held the permit at once", guarded)
	}
}

func TestSemaphore_RacesWithClose(t *testing.T) {
	t.Parallel()
	for range 50 {
		s, err := posix.New(2)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 100 {
					if s.Wait(context.Background()) != nil {
						return
					}
					s.Post()
				}
			})
		}
		wg.Go(func() {
			s.Close()
			runtime.GC()
		})
		wg.Wait()
	}
}

func TestMemory_IsUnmappedWhenUnreachable(t *testing.T) {
	t.Parallel()
	name := uniqueName(t)
	var inode string
	mapped := func() bool {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(strings.Split(string(maps), "\n"), func(line string) bool {
			return strings.Contains(line, inode) && strings.Contains(line, "/dev/shm/")
		})
	}
	func() {
		s, err := posix.Create(name, 0o600, 0, true)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(posix.FileOf(name))
		if err != nil {
			t.Fatal(err)
		}
		inode = fmt.Sprintf(" %d ", info.Sys().(*syscall.Stat_t).Ino)
		ctx, cancel := context.WithCancel(t.Context())
		blocked := startWait(ctx, s)
		awaitSleepers(t, s, 1)
		s.Close()
		wantErr(t, result(t, blocked), sema.ErrClosed)
		cancel()
		runtime.GC()
		if !mapped() {
			t.Error("unmapped although the semaphore can still be used")
		}
		runtime.KeepAlive(s)
	}()
	eventually(t, "unmapped", func() bool {
		runtime.GC()
		return !mapped()
	})
}

// TestMemory_StaysMappedUnderAWaiter keeps only the reference of a goroutine that
// sleeps in Wait.
func TestMemory_StaysMappedUnderAWaiter(t *testing.T) {
	t.Parallel()
	name := uniqueName(t)
	blocked := func() <-chan error {
		s, err := posix.Create(name, 0o600, 0, true)
		if err != nil {
			t.Fatal(err)
		}
		c := startWait(context.Background(), s)
		awaitSleepers(t, s, 1)
		return c
	}()
	for range 5 {
		runtime.GC()
	}
	proctest.Start(t, "post", name).Expect("posted")
	wantErr(t, result(t, blocked), nil)
}

func TestSemaphore_WaitAndPostDoNotAllocate(t *testing.T) {
	s := create(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if n := testing.AllocsPerRun(1000, func() {
		s.Wait(ctx)
		s.Post()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
