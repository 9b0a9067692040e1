package etcdstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// oneTry is the timeout of one request. The next may reach another member, if this one
// is partitioned.
const oneTry = 1500 * time.Millisecond

// txn commits one transaction. If it fails, its result may be unknown.
func (s *Store) txn(guards []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(s.life, oneTry)
	defer cancel()
	client, err := s.connection.client(ctx)
	if err != nil {
		return nil, err
	}
	s.counts.transactions.Add(1)
	return client.Txn(ctx).If(guards...).Then(then...).Else(otherwise...).Commit()
}

// since returns what to read to catch up.
func (t *turn) since() []clientv3.Op {
	k, v := t.store.keys, t.view
	from := k.log(v.name)
	if v.loaded && v.revision != 0 {
		from = k.entry(v.name, v.head.Number+1)
	}
	return []clientv3.Op{
		clientv3.OpGet(k.head(v.name)), clientv3.OpGet(k.floor()),
		clientv3.OpGet(from, clientv3.WithRange(end(k.log(v.name)))),
		clientv3.OpGet(k.batches(v.name), clientv3.WithPrefix(), clientv3.WithLimit(maxCombined)),
	}
}

// read catches up, if another process has written since the view was read.
func (t *turn) read() error {
	v := t.view
	var guards []clientv3.Cmp
	if v.loaded && v.revision != 0 {
		guards = append(guards, clientv3.Compare(clientv3.ModRevision(t.store.keys.head(v.name)), "=", v.revision))
	} else {
		guards = append(guards, clientv3.Compare(clientv3.ModRevision(t.store.keys.head(v.name)), "<", 0)) // it never is
	}
	r, err := t.store.txn(guards, nil, t.since())
	if err != nil {
		return err
	}
	v.stale = false
	if r.Succeeded {
		v.fresh = true
		return nil
	}
	return t.catchUp(r)
}

// catchUp applies what was read.
func (t *turn) catchUp(r *clientv3.TxnResponse) error {
	v := t.view
	whole := !v.loaded || v.revision == 0
	found := r.Responses[len(r.Responses)-4:] // after a put, if any
	err := t.takeIn(found[0].GetResponseRange().Kvs, found[1].GetResponseRange().Kvs, found[2].GetResponseRange().Kvs, found[3].GetResponseRange().Kvs, r.Header.Revision)
	switch {
	case errors.Is(err, errGap) && whole:
		return v.damaged(err)
	case errors.Is(err, errGap):
		v.unload()
		return nil // the next attempt reads all of it
	}
	return err
}

func (t *turn) takeIn(heads, floors, log, batches []*mvccpb.KeyValue, revision int64) error {
	v := t.view
	var h *mvccpb.KeyValue
	if len(heads) > 0 {
		h = heads[0]
		if _, err := parseHead(h); err != nil { // first: entries of another version may be unreadable
			return v.damaged(err)
		}
	}
	entries, err := t.parseLog(log, revision)
	if err != nil {
		return err
	}
	if v.loaded && v.revision != 0 && h != nil {
		err = v.absorb(h, entries)
	} else {
		err = v.load(h, entries)
	}
	if err != nil {
		return err
	}
	v.fresh = true
	v.floor, v.floorRevision = 0, 0
	if len(floors) > 0 {
		var f floor
		if err := json.Unmarshal(floors[0].Value, &f); err != nil {
			return permanent{fmt.Errorf("key %q is damaged: %w", floors[0].Key, err)}
		}
		v.floor, v.floorRevision = f.Last, floors[0].ModRevision
	}
	t.endWritten(entries)
	t.others = t.parsePublications(batches)
	return nil
}

func (t *turn) parseLog(log []*mvccpb.KeyValue, revision int64) ([]written, error) {
	entries := make([]written, len(log))
	for i, found := range log {
		w, err := parseEntry(found)
		if err != nil {
			return nil, t.view.damaged(err)
		}
		if w.entry.Parts > 0 {
			if err := t.gather(&w, revision); err != nil {
				return nil, err
			}
		}
		entries[i] = w
	}
	return entries, nil
}

// gather reads the parts of a large entry.
func (t *turn) gather(w *written, revision int64) error {
	ctx, cancel := context.WithTimeout(t.store.life, oneTry)
	defer cancel()
	client, err := t.store.connection.client(ctx)
	if err != nil {
		return err
	}
	r, err := client.Get(ctx, t.store.keys.partsOf(t.view.name, w.number, w.entry.By), clientv3.WithPrefix(), clientv3.WithRev(revision))
	if err != nil {
		return err
	}
	var text []byte
	for _, part := range r.Kvs {
		text = append(text, part.Value...)
	}
	if len(r.Kvs) != w.entry.Parts {
		return t.view.damaged(fmt.Errorf("entry %d has %d parts, not %d", w.number, len(r.Kvs), w.entry.Parts))
	}
	if err := w.decode(text); err != nil {
		return t.view.damaged(err)
	}
	return nil
}

// endWritten ends the calls that were written: by an attempt whose reply was lost, or
// by another process.
func (t *turn) endWritten(entries []written) {
	t.calls = slices.DeleteFunc(t.calls, func(c *call) bool {
		o, ended := c.found(entries, t.view.life)
		if ended {
			c.end(o)
		}
		return ended
	})
}

// found returns the result of a call, if it was written, by the entries since and the
// life of the semaphore now. A deleted semaphore has no log: that it is gone proves
// the deletion. Another attempt would delete a semaphore that was created since.
func (c *call) found(entries []written, life int64) (o outcome, ended bool) {
	for _, u := range c.unsure {
		if u.deletes != 0 && u.deletes != life {
			return u.outcome, true
		}
	}
	for _, w := range entries {
		for _, u := range c.unsure {
			if u.attempt == w.entry.By {
				return u.outcome, true
			}
		}
		for _, r := range w.entry.Replies {
			if c.name != "" && r.To == c.name {
				return outcome{reply: r.Reply.reply()}, true
			}
		}
	}
	return o, false
}

// write writes a proposal, or catches up with what others have written.
func (t *turn) write(p *proposal) error {
	v, k := t.view, t.store.keys
	if err := t.upload(p); err != nil {
		return err
	}
	guards, then := v.operations(p, k)
	then = append(then, t.clear()...)
	r, err := t.store.txn(guards, then, append(t.publish(), t.since()...))
	switch {
	case err != nil:
		unsure := attempted{attempt: p.attempt}
		if p.deletes {
			unsure.deletes = v.life
		}
		for _, c := range t.calls {
			unsure.outcome = c.last
			c.unsure = append(c.unsure, unsure)
		}
		return err
	case !r.Succeeded:
		t.store.counts.conflicts.Add(1)
		t.published = true
		return t.catchUp(r)
	}
	t.store.counts.writes.Add(1)
	v.adopt(p, r.Header.Revision)
	t.finish()
	if len(p.hints) > maxHints {
		t.store.hintLater(v.name, p.hints[maxHints:])
	}
	return nil
}

// upload writes the parts of a large entry, which are not read before the entry is
// there.
func (t *turn) upload(p *proposal) error {
	for i, part := range p.parts {
		key := t.store.keys.part(t.view.name, p.number, p.attempt, i)
		if _, err := t.store.txn(nil, []clientv3.Op{clientv3.OpPut(key, part)}, nil); err != nil {
			return err
		}
	}
	return nil
}
