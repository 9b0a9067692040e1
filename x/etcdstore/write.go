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

// oneTry is how long etcd has for an answer before it is asked again: another
// member may answer, if this one is cut off.
const oneTry = 1500 * time.Millisecond

// txn is one transaction. Its result may be unknown if it fails.
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

// since is what to read to catch up.
func (t *turn) since() []clientv3.Op {
	k, v := t.store.keys, t.view
	from := k.log(v.name)
	if v.loaded && v.revision != 0 {
		from = k.entry(v.name, v.head.Number+1)
	}
	return []clientv3.Op{
		clientv3.OpGet(k.head(v.name)), clientv3.OpGet(k.floor()),
		clientv3.OpGet(from, clientv3.WithRange(end(k.log(v.name)))),
		clientv3.OpGet(k.calls(v.name), clientv3.WithPrefix(), clientv3.WithLimit(maxAlong)),
	}
}

// read catches up, if somebody has written since the view was read.
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

// catchUp takes in what was read.
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
		return nil // and is read as a whole
	}
	return err
}

func (t *turn) takeIn(heads, floors, log, calls []*mvccpb.KeyValue, revision int64) error {
	v := t.view
	var h *mvccpb.KeyValue
	if len(heads) > 0 {
		h = heads[0]
		if _, err := parseHead(h); err != nil { // first of all: who does not know it does not know the rest
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
	t.hear(entries)
	t.others = t.parseCalls(calls)
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

// gather has a large entry whole.
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

// hear ends the calls that were written: by an attempt of which that was not
// known, or by somebody else.
func (t *turn) hear(entries []written) {
	t.calls = slices.DeleteFunc(t.calls, func(c *call) bool {
		o, ended := c.found(entries, t.view.life)
		if ended {
			c.end(o)
		}
		return ended
	})
}

// found is what a call ends with, by the entries that came since and the life
// of the semaphore that is there now. A semaphore that was to be deleted has no
// log any more: that it is gone is all there is to know. To try again would be
// to delete what somebody has made since.
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
		for _, a := range w.entry.Answers {
			if c.name != "" && a.To == c.name {
				return outcome{reply: a.Reply}, true
			}
		}
	}
	return o, false
}

// write writes a proposal down, or catches up with what others have written.
func (t *turn) write(p *proposal) error {
	v, k := t.view, t.store.keys
	if err := t.upload(p); err != nil {
		return err
	}
	guards, then := v.operations(p, k)
	then = append(then, t.answered()...)
	r, err := t.store.txn(guards, then, append(t.publication(), t.since()...))
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

// upload writes the parts of a large entry, which nobody looks at before the
// entry is there.
func (t *turn) upload(p *proposal) error {
	for i, part := range p.parts {
		key := t.store.keys.part(t.view.name, p.number, p.attempt, i)
		if _, err := t.store.txn(nil, []clientv3.Op{clientv3.OpPut(key, part)}, nil); err != nil {
			return err
		}
	}
	return nil
}
