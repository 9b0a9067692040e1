package sqlitestore

import (
	"context"
	"fmt"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// List implements [fleet.Store]. It reads the file on a connection of its own, so that a long
// list does not delay requests. What the writer has in memory is newer than the file, which
// may lack the end of a session, and replaces what was read. Lists take turns at the
// connection after a number of semaphores, so that a short one waits for no long one.
func (s *Store) List(ctx context.Context, q protocol.ListQuery) ([]protocol.Summary, error) {
	var now protocol.Micros // this and page are dropped if ctx ends: the writer may still use them
	var page []protocol.Summary
	if err := s.onWriter(ctx, func(w *writer) { now = w.now() }); err != nil {
		return nil, err
	}
	for most, full := q.Most(), true; full && len(page) < most; {
		q.Limit = min(listedAtOnce, most-len(page))
		err := s.shared.snapshot(ctx, func(f *file) error {
			part, err := f.summaries(s.prefix, q, now)
			page = append(page, part...)
			if full = len(part) == q.Limit; full {
				q.After = part[len(part)-1].Name
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	err := s.onWriter(ctx, func(w *writer) {
		for i, one := range page {
			if k := w.entries[s.prefix+one.Name]; k != nil && k.state != nil {
				page[i] = k.state.Summary(one.Name)
				page[i].Effective = max(page[i].Effective, one.Effective)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

// listedAtOnce is the number of semaphores that a list reads in one turn.
const listedAtOnce = 100

// onWriter calls do in the writer's goroutine. The call may follow after ctx has ended.
func (s *Store) onWriter(ctx context.Context, do func(*writer)) error {
	return s.await(ctx, &request{ctx: ctx, size: 1, read: func(*file) error {
		do(&s.shared.writer)
		return nil
	}})
}

// List implements [fleet.Store].
func (r *Reader) List(ctx context.Context, q protocol.ListQuery) (page []protocol.Summary, err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	err = r.read(func(f *file) (err error) {
		page, err = f.summaries(r.prefix, q, protocol.Micros(time.Now().UnixMicro()))
		return err
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

// summaries returns one page of the semaphores whose names start with prefix, with the
// prefix removed. It is one search in the index of names.
func (f *file) summaries(prefix string, q protocol.ListQuery, now protocol.Micros) (page []protocol.Summary, err error) {
	first, end := prefix+q.Prefix, prefixEnd(prefix+q.Prefix)
	if q.After != "" {
		first = max(first, prefix+q.After+"\x00") // the next text in byte order
	}
	v := values{}.with(first, end, int64(q.Most()), int64(now))
	err = f.list.findBy(v, func(r *row) {
		one, err := readSummary(r, now)
		if err != nil {
			r.err = fmt.Errorf("semaphore %q cannot be read: %w", one.Name, err)
			return
		}
		one.Name = one.Name[len(prefix):]
		page = append(page, one)
	})
	return page, err
}

func readSummary(r *row, now protocol.Micros) (one protocol.Summary, err error) {
	name, config := r.text(), r.text()
	one.Name = name
	im := protocol.Image{RampFrom: r.integer(), RampAt: protocol.Micros(r.integer()), Last: max(now, protocol.Micros(r.integer()))}
	if err := decode(config, &im.Config); err != nil {
		return one, err
	}
	state, err := protocol.Restore(im) // without sessions and leases: for the current capacity
	if err != nil {
		return one, err
	}
	one = state.Summary(name)
	one.InUse, one.Leases, one.Waiting, one.Sessions = r.integer(), r.integer(), r.integer(), r.integer()
	return one, r.err
}

// prefixEnd returns the first text, in byte order, after all texts that start with the
// prefix. No name contains the byte 0xff.
func prefixEnd(prefix string) string {
	for end := []byte(prefix); len(end) > 0; end = end[:len(end)-1] {
		if last := len(end) - 1; end[last] < 0xff {
			end[last]++
			return string(end)
		}
	}
	return "\xff"
}
