package sqlitestore

import (
	"context"
	"fmt"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// List implements [fleet.Store].
func (s *Store) List(ctx context.Context, q protocol.ListQuery) ([]protocol.Summary, error) {
	var page []protocol.Summary // not a named result: the writer may set it after the context has ended
	err := s.await(ctx, &request{ctx: ctx, size: 1, read: func(f *file) (err error) {
		w := &s.shared.writer
		if page, err = f.summaries(s.prefix, q, w.now()); err != nil {
			return err
		}
		for i, one := range page {
			if k := w.entries[s.prefix+one.Name]; k != nil && k.state != nil {
				page[i] = k.state.Summary(one.Name) // newer than the file, which may lack the end of a session
				page[i].Effective = max(page[i].Effective, one.Effective)
			}
		}
		return nil
	}})
	if err != nil {
		return nil, err
	}
	return page, nil
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
