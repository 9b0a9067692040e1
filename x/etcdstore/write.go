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

// requestTimeout bounds one request. The next may reach another member, if this one is
// partitioned.
const requestTimeout = 1500 * time.Millisecond

// txn commits one transaction. If it fails, its result may be unknown.
func (s *Store) txn(guards []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(s.life, requestTimeout)
	defer cancel()
	client, err := s.connection.client(ctx)
	if err != nil {
		return nil, err
	}
	s.counts.transactions.Add(1)
	return client.Txn(ctx).If(guards...).Then(then...).Else(otherwise...).Commit()
}

// since returns the reads with which the view catches up.
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

// read updates the view, if another process has written since it was read.
func (t *turn) read() error {
	v := t.view
	var guards []clientv3.Cmp
	if v.loaded && v.revision != 0 {
		guards = append(guards, clientv3.Compare(clientv3.ModRevision(t.store.keys.head(v.name)), "=", v.revision))
	} else {
		guards = append(guards, clientv3.Compare(clientv3.ModRevision(t.store.keys.head(v.name)), "<", 0)) // never true
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

// catchUp updates the view with the responses to since.
func (t *turn) catchUp(r *clientv3.TxnResponse) error {
	v := t.view
	whole := !v.loaded || v.revision == 0
	found := r.Responses[len(r.Responses)-4:] // after that of a put, if any
	err := t.update(found[0].GetResponseRange().Kvs, found[1].GetResponseRange().Kvs, found[2].GetResponseRange().Kvs, found[3].GetResponseRange().Kvs, r.Header.Revision)
	switch {
	case errors.Is(err, errGap) && whole:
		return v.damaged(err)
	case errors.Is(err, errGap):
		v.unload()
		return nil // the next attempt reads all of it
	}
	return err
}

func (t *turn) update(heads, floors, log, batches []*mvccpb.KeyValue, revision int64) error {
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
	ctx, cancel := context.WithTimeout(t.store.life, requestTimeout)
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

// endWritten ends the calls that are written: by an attempt whose reply was lost, or by
// another process.
func (t *turn) endWritten(entries []written) {
	t.calls = slices.DeleteFunc(t.calls, func(c *call) bool {
		o, ended := c.found(entries, t.view.createRevision)
		if ended {
			c.end(o)
		}
		return ended
	})
}

// found returns the result of a call, if it is written. It searches the entries since the
// attempt. A deleted semaphore has no log: there the create revision of the semaphore now
// differs, which proves the deletion. Another attempt would delete a semaphore that was
// created since.
func (c *call) found(entries []written, createRevision int64) (o result, ended bool) {
	for _, u := range c.unconfirmed {
		if u.deletes != 0 && u.deletes != createRevision {
			return u.result, true
		}
	}
	for _, w := range entries {
		for _, u := range c.unconfirmed {
			if u.attempt == w.entry.By {
				return u.result, true
			}
		}
		for _, r := range w.entry.Replies {
			if c.name != "" && r.To == c.name {
				return result{reply: r.Reply.reply()}, true
			}
		}
	}
	return o, false
}

// write writes a proposal, or reads what other processes have written.
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
		unconfirmed := attempted{attempt: p.attempt}
		if p.deletes {
			unconfirmed.deletes = v.createRevision
		}
		for _, c := range t.calls {
			unconfirmed.result = c.last
			c.unconfirmed = append(c.unconfirmed, unconfirmed)
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
	if len(p.notify) > maxNotifications {
		t.store.notifyLater(v.name, p.notify[maxNotifications:])
	}
	return nil
}

// upload writes the parts of a large entry, which are not read before the entry is written.
func (t *turn) upload(p *proposal) error {
	for i, part := range p.parts {
		key := t.store.keys.part(t.view.name, p.number, p.attempt, i)
		if _, err := t.store.txn(nil, []clientv3.Op{clientv3.OpPut(key, part)}, nil); err != nil {
			return err
		}
	}
	return nil
}
