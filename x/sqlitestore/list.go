package sqlitestore

import (
	"context"
	"fmt"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// List implements [fleet.Store].
func (s *Store) List(ctx context.Context, q protocol.ListQuery) ([]protocol.Summary, error) {
	var page []protocol.Summary // not a result: the writer may set it after a context has ended
	err := s.await(ctx, &request{ctx: ctx, size: 1, read: func(f *file) (err error) {
		w := &s.engine.writer
		if page, err = f.summaries(s.prefix, q, w.now()); err != nil {
			return err
		}
		for i, one := range page {
			if k := w.kept[s.prefix+one.Name]; k != nil && k.state != nil {
				page[i] = k.state.Summary(one.Name) // newer than the file: the end of a session may not be written yet
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

// summaries returns the page of a query about names behind a prefix, without the
// prefix. It is one search in the index of names.
func (f *file) summaries(prefix string, q protocol.ListQuery, now protocol.Micros) (page []protocol.Summary, err error) {
	first, end := prefix+q.Prefix, afterAll(prefix+q.Prefix)
	if q.After != "" {
		first = max(first, prefix+q.After+"\x00") // the next text in the order of bytes
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
	state, err := protocol.Restore(im) // without sessions and leases: for the capacity now
	if err != nil {
		return one, err
	}
	one = state.Summary(name)
	one.InUse, one.Leases, one.Waiting, one.Sessions = r.integer(), r.integer(), r.integer(), r.integer()
	return one, r.err
}

// afterAll returns the first text in the order of bytes that follows all that begin
// with a prefix. No name has a byte 0xff.
func afterAll(prefix string) string {
	for end := []byte(prefix); len(end) > 0; end = end[:len(end)-1] {
		if last := len(end) - 1; end[last] < 0xff {
			end[last]++
			return string(end)
		}
	}
	return "\xff"
}
