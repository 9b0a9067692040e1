package top

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sema-go/sema/cmd/sema/internal/store"
	"github.com/sema-go/sema/host"
)

// A hostSource is the semaphores of this machine. They know nothing of drains, and
// who holds a permit cannot be parted from it.
type hostSource struct{ opts []host.Option }

func openHost(u store.URL) (source, error) {
	opts, err := u.HostOptions()
	if err != nil {
		return nil, err
	}
	if _, err := host.Where(opts...); err != nil {
		return nil, store.Unreached(err)
	}
	return &hostSource{opts}, nil
}

// Close has nothing to close.
func (s *hostSource) Close() error { return nil }

func (s *hostSource) look(_ context.Context, prefix, _ string) (v view, err error) {
	all, err := host.List(s.opts...)
	if err != nil {
		return v, err
	}
	for _, one := range all {
		if !strings.HasPrefix(one.Name, prefix) {
			continue
		}
		seen := semaphore{name: one.Name, capacity: one.Stats.Capacity, effective: one.Stats.Capacity, inUse: one.Stats.InUse, waiting: one.Stats.Waiters}
		if seen.holders, err = s.holders(one.Name); err != nil {
			seen.failure = err.Error()
		}
		v.semaphores = append(v.semaphores, seen)
	}
	return v, nil
}

func (s *hostSource) holders(name string) (all []holder, err error) {
	sem, err := host.Open(name, host.Existing, s.opts...)
	if err != nil {
		return nil, err
	}
	defer sem.Close()
	holders, err := sem.Holders()
	for _, h := range holders {
		one := holder{weight: h.Weight, who: "a process", where: h.Command}
		if h.PID != 0 {
			one.who = fmt.Sprintf("process %d", h.PID)
		}
		if !h.Since.IsZero() {
			one.held = max(0, time.Since(h.Since))
		}
		all = append(all, one)
	}
	return all, err
}

func (s *hostSource) resize(_ context.Context, name string, capacity int64) error {
	sem, err := host.Open(name, host.Existing, s.opts...)
	if err != nil {
		return err
	}
	return errors.Join(sem.Resize(capacity), sem.Close())
}

func (s *hostSource) drain(context.Context, string) error {
	return errors.New("semaphores of this machine cannot be drained; set the capacity to 0, and nobody is let in")
}

func (s *hostSource) resume(context.Context, string) error {
	return errors.New("semaphores of this machine are not drained; set the capacity")
}

func (s *hostSource) revoke(context.Context, string, uint64) error {
	return errors.New("on this machine a permit belongs to its process; kill that, and it is free")
}
