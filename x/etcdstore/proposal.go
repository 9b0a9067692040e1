package etcdstore

import (
	"reflect"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sema-go/sema/fleet/protocol"
)

const (
	// maxValue is the largest size of a value, in bytes. A request may have 1.5 MB.
	maxValue = 1 << 20
	// fewRows is the number of rows up to which all of them are written: it costs little,
	// and the last entry of a small semaphore shows all of it.
	fewRows = 6
	// leastLog is the least size of the entries, in bytes, after which all of the state is
	// written again.
	leastLog = 32 << 10
	// keptEntries is the number of entries that are kept before the last complete one, for
	// processes that are a little behind, or do not know the result of an attempt.
	keptEntries = 16
	// maxNotifications is the largest number of notifications in a write, so that the write
	// has less than 128 operations. Others follow it.
	maxNotifications = 64
)

// A proposal is the write of an attempt.
type proposal struct {
	attempt string
	number  uint64
	full    bool
	changes protocol.Changes
	rows    *rows // the state after it, if full
	head    head
	entry   entry
	text    string // of the entry
	parts   []string
	notify  []string // instances
	deletes bool
}

// propose returns a proposal with all changes, nil if nothing has changed. The passing of
// time alone is not worth a write: a clock that is behind makes sessions live longer, never
// shorter.
func (v *view) propose(attempt string, replies []replyTo) *proposal {
	switch {
	case v.state == nil && v.rows == nil:
		return nil
	case v.state == nil:
		return &proposal{attempt: attempt, deletes: true}
	}
	p := &proposal{attempt: attempt, number: v.head.Number + 1, changes: v.state.Changes()}
	c := &p.changes
	p.notify = v.toNotify(c)
	if v.rows != nil && !v.changed(c) && len(replies) == 0 && len(p.notify) == 0 {
		return nil
	}
	p.full = v.rows == nil || v.logged >= max(leastLog, v.complete) || v.rows.count()+len(c.Sessions)+len(c.Leases)+len(c.Queue) <= fewRows
	p.entry = entry{By: attempt, Pace: v.pace.passed, Replies: replies, Watching: ticketNameRow(v.watching), Plain: newPlainRow(c.Image)}
	full, until := v.head.Full, v.head.SpentUntil
	if c.Respent {
		until = spentUntil(c.Spent)
	}
	if p.full {
		im := v.state.Image()
		p.rows = newRows(im)
		p.entry.State = newStateRows(im)
		full = p.number
	} else {
		p.entry.Changes = newChangeRows(c, v.rows)
	}
	p.head = newHead(p.number, full, c.Image, v.state.Summary(v.name), until)
	if p.text = pack(p.entry); len(p.text) > v.maxValue {
		for part := range slices.Chunk([]byte(p.text), v.maxValue) {
			p.parts = append(p.parts, string(part))
		}
		p.text = encode(entry{By: attempt, Parts: len(p.parts)})
	}
	return p
}

func (v *view) changed(c *protocol.Changes) bool {
	if len(c.Sessions)+len(c.Ended)+len(c.Leases)+len(c.Dropped)+len(c.Queue)+len(c.Left) > 0 || c.Respent {
		return true
	}
	now, then := c.Image, v.rows.plain
	now.Last, now.Clock, then.Last, then.Clock = 0, 0, 0, 0
	return !reflect.DeepEqual(now, then)
}

// toNotify returns the instances to notify. It leaves out the first ticket of the queue if
// its session was notified to watch the time before: a restored state does not contain that,
// and would notify the session again with each entry of another process.
func (v *view) toNotify(c *protocol.Changes) (instances []string) {
	woken := v.state.Woken()
	if len(woken) == 0 {
		return nil
	}
	var first protocol.TicketName
	if queue := v.state.Snapshot().Queue; len(queue) > 0 {
		first = protocol.TicketName{Session: queue[0].Session, Ticket: queue[0].Ticket}
	}
	for _, id := range woken {
		if !slices.ContainsFunc(c.Sessions, func(s protocol.SessionImage) bool { return s.ID == id }) && id == first.Session {
			if v.watching == first {
				continue
			}
			v.watching = first
		}
		if instance := v.state.Instance(id); instance != "" && !slices.Contains(instances, instance) {
			instances = append(instances, instance)
		}
	}
	return instances
}

// adopt updates the view with a proposal that was written in a revision.
func (v *view) adopt(p *proposal, revision int64) {
	switch {
	case p.deletes:
		v.unload()
		return
	case p.full:
		v.rows, v.complete, v.logged = p.rows, len(p.text), 0
	default:
		v.rows.apply(&p.changes)
		v.logged += len(p.text)
	}
	if v.revision == 0 {
		v.createRevision = revision
	}
	v.head, v.revision = p.head, revision
	v.pace.learn(p.entry.Pace, v.rows.plain.Config.TTL)
}

// operations returns the guards and the operations that write a proposal.
func (v *view) operations(p *proposal, k keys) (guards []clientv3.Cmp, ops []clientv3.Op) {
	guards = []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(k.head(v.name)), "=", v.revision)}
	if v.revision == 0 || p.deletes {
		guards = append(guards, clientv3.Compare(clientv3.ModRevision(k.floor()), "=", v.floorRevision))
	}
	if p.deletes {
		last := max(v.floor, protocol.Seq(v.rows.plain.LastSession), v.rows.plain.LastSeq)
		return guards, []clientv3.Op{
			clientv3.OpPut(k.floor(), encode(floor{last})), clientv3.OpDelete(k.head(v.name)),
			clientv3.OpDelete(k.log(v.name), clientv3.WithPrefix()), clientv3.OpDelete(k.parts(v.name), clientv3.WithPrefix()),
			clientv3.OpDelete(k.batches(v.name), clientv3.WithPrefix()),
		}
	}
	ops = []clientv3.Op{clientv3.OpPut(k.head(v.name), encode(p.head)), clientv3.OpPut(k.entry(v.name, p.number), p.text)}
	if p.full && p.number > keptEntries && (v.head.Full%keptEntries == 0 || p.number-v.head.Full > 1) {
		dropped := p.number - keptEntries
		ops = append(ops,
			clientv3.OpDelete(k.log(v.name), clientv3.WithRange(k.entry(v.name, dropped))),
			clientv3.OpDelete(k.parts(v.name), clientv3.WithRange(k.partsOf(v.name, dropped, ""))))
	}
	for _, instance := range p.notify[:min(len(p.notify), maxNotifications)] {
		ops = append(ops, k.notifyOp(instance, v.name))
	}
	return guards, ops
}

// A floor is the highest Seq, or session, of all semaphores that were deleted. Numbers of
// new semaphores begin after it.
type floor struct {
	Last protocol.Seq `json:"last"`
}

// notifyOp returns the operation that notifies an instance, if it listens.
func (k keys) notifyOp(instance, name string) clientv3.Op {
	key := k.notify(instance)
	return clientv3.OpTxn(
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), ">", 0)},
		[]clientv3.Op{clientv3.OpPut(key, name, clientv3.WithIgnoreLease())}, nil)
}
