package etcdstore

import (
	"strings"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sema-go/sema/fleet/protocol"
)

// Batches are combined across processes (flat combining).
//
// The write of a process fails if another process has written first, and its next write
// may fail as well. So the process publishes its batches in the transaction that fails.
// Processes whose writes fail later read them. The next process whose write succeeds
// applies them with its own batches, and its entry contains the replies. However many
// processes contend, each is served in about the second round, and none starves.
//
// Combining is safe because a batch is applied at most once. A batch may be combined twice,
// or long after its caller has stopped waiting. That is the same as a batch that the network
// has duplicated or delayed.
const (
	maxCombined      = 16        // processes whose batches one write combines
	maxPublished     = 8         // batches of one process
	maxPublishedSize = 128 << 10 // bytes of them
	maxReplies       = 256 << 10 // bytes of replies in an entry
)

// A publication holds the batches that a process publishes for others to apply.
type publication struct {
	key     string
	batches []publicBatch
}

// The rows of publications and of replies to them.
type (
	publicBatch struct {
		Name  string   `json:"name"`
		Batch batchRow `json:"batch"`
	}
	batchRow struct {
		Session   protocol.Session `json:"session"`
		Key       keyRow           `json:"key"`
		Principal textRow          `json:"principal,omitempty"`
		Seq       uint64           `json:"seq"`
		Ack       uint64           `json:"ack,omitempty"`
		Ops       []opRow          `json:"ops,omitempty"`
		End       bool             `json:"end,omitempty"`
		Highest   protocol.Seq     `json:"highest,omitempty"`
	}
	opRow struct {
		Verb    protocol.Verb   `json:"verb"`
		Ticket  protocol.Ticket `json:"ticket,omitempty"`
		Lease   protocol.Seq    `json:"lease,omitempty"`
		Weight  int64           `json:"weight,omitempty"`
		Least   int64           `json:"least,omitempty"`
		Wait    protocol.Micros `json:"wait,omitempty"`
		Try     bool            `json:"try,omitempty"`
		Pooled  bool            `json:"pooled,omitempty"`
		Details string          `json:"details,omitempty"`
	}
	replyTo struct {
		To    string   `json:"to"` // the name of the batch
		Reply replyRow `json:"reply"`
	}
	replyRow struct {
		Status    protocol.Status `json:"status"`
		Results   []resultRow     `json:"results,omitempty"`
		More      bool            `json:"more,omitempty"`
		Next      protocol.Micros `json:"next,omitempty"`
		Recall    bool            `json:"recall,omitempty"`
		Config    configRow       `json:"config"`
		InUse     int64           `json:"in_use"`
		Undecided protocol.Micros `json:"undecided,omitempty"`
		Wanted    int64           `json:"wanted,omitempty"`
		First     int64           `json:"first,omitempty"`
		Share     int64           `json:"share,omitempty"`
		Valid     protocol.Micros `json:"valid,omitempty"`
	}
	fenceRow struct {
		Seq     protocol.Seq `json:"seq"`
		Floor   protocol.Seq `json:"floor"`
		Revoked []rangeRow   `json:"revoked,omitempty"`
		Exact   bool         `json:"exact,omitempty"`
	}
	rangeRow struct {
		From protocol.Seq `json:"from"`
		To   protocol.Seq `json:"to"`
	}
)

func newBatchRow(b protocol.Batch) batchRow {
	var d detailsText
	return batchRow{
		b.Session, keyRow(b.Owner.Key), textRow(b.Owner.Principal), b.Seq, b.Ack,
		each(b.Ops, func(op protocol.Op) opRow {
			return opRow{op.Verb, op.Ticket, op.Lease, op.Weight, op.Least, op.Wait, op.Try, op.Pooled, d.encode(op.Details)}
		}), b.End, b.Highest,
	}
}

func (b batchRow) batch() (protocol.Batch, error) {
	var d detailsText
	batch := protocol.Batch{
		Session: b.Session, Owner: protocol.Owner{Key: protocol.Key(b.Key), Principal: string(b.Principal)}, Seq: b.Seq, Ack: b.Ack,
		Ops: each(b.Ops, func(op opRow) protocol.Op {
			return protocol.Op{Verb: op.Verb, Ticket: op.Ticket, Lease: op.Lease, Weight: op.Weight, Least: op.Least, Wait: op.Wait, Try: op.Try, Pooled: op.Pooled, Details: d.decode(op.Details)}
		}), End: b.End, Highest: b.Highest,
	}
	return batch, d.err
}

func newReplyRow(r protocol.Reply) replyRow {
	return replyRow{r.Status, each(r.Results, newResultRow), r.More, r.Next, r.Recall, newConfigRow(r.Config), r.InUse, r.Undecided, r.Wanted, r.First, r.Share, r.Valid}
}

func (r replyRow) reply() protocol.Reply {
	return protocol.Reply{
		Status: r.Status, Results: each(r.Results, resultRow.result), More: r.More, Next: r.Next, Recall: r.Recall, Config: r.Config.config(), InUse: r.InUse,
		Undecided: r.Undecided, Wanted: r.Wanted, First: r.First, Share: r.Share, Valid: r.Valid,
	}
}

func newFenceRow(f protocol.Fence) *fenceRow {
	return &fenceRow{f.Seq, f.Floor, each(f.Revoked, func(r protocol.Range) rangeRow { return rangeRow(r) }), f.Exact}
}

// fence returns the fence of a row, which may be nil.
func (f *fenceRow) fence() protocol.Fence {
	if f == nil {
		return protocol.Fence{}
	}
	return protocol.Fence{Seq: f.Seq, Floor: f.Floor, Revoked: each(f.Revoked, func(r rangeRow) protocol.Range { return protocol.Range(r) }), Exact: f.Exact}
}

// publish returns the operations that publish the batches of the turn. They do so only if
// the semaphore exists: the batches of a deleted one would never be removed.
func (t *turn) publish() []clientv3.Op {
	if t.published || !t.store.combines {
		return nil
	}
	var public []publicBatch
	size := 0
	for _, c := range t.calls {
		if c.batch == nil {
			continue
		}
		if size += c.size; size > maxPublishedSize || len(public) == maxPublished {
			break
		}
		if c.name == "" { // otherwise it keeps its name: a process that read it before may reply
			c.name = t.store.attempts.next()
		}
		public = append(public, publicBatch{c.name, newBatchRow(*c.batch)})
	}
	if len(public) == 0 {
		return nil
	}
	k, name := t.store.keys, t.view.name
	return []clientv3.Op{clientv3.OpTxn(
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(k.head(name)), ">", 0)},
		[]clientv3.Op{clientv3.OpPut(k.batch(name, t.store.attempts.process), pack(public))}, nil)}
}

// parsePublications returns the publications of other processes.
func (t *turn) parsePublications(found []*mvccpb.KeyValue) (all []publication) {
	for _, kv := range found {
		p := publication{key: string(kv.Key)}
		if strings.HasSuffix(p.key, " "+t.store.attempts.process) {
			continue
		}
		if err := unpack(kv.Value, &p.batches); err != nil {
			p.batches = nil // of another version; the key is removed
		}
		all = append(all, p)
	}
	return all
}

// combine applies the batches of other processes. It reports false if one panics:
// then the state has to be discarded.
func (t *turn) combine(now protocol.Micros) (replies []replyTo, ok bool) {
	defer func() {
		if recover() != nil {
			t.alone, ok = true, false // the process that published the batch gets the panic
		}
	}()
	if t.view.state == nil || t.alone {
		t.others = nil
		return nil, true
	}
	size := 0
	for i, p := range t.others {
		if size > maxReplies {
			t.others = t.others[:i]
			break
		}
		for _, public := range p.batches {
			b, err := public.Batch.batch()
			if err != nil {
				continue // of another version
			}
			reply := t.view.state.Apply(now, b)
			replies = append(replies, replyTo{public.Name, newReplyRow(reply)})
			for _, r := range reply.Results {
				size += 150 + 32*len(r.Fence.Revoked)
			}
		}
	}
	return replies, true
}

// clear returns the operations that remove the publications that are applied: those of
// other processes and that of this one.
func (t *turn) clear() (ops []clientv3.Op) {
	for _, p := range t.others {
		ops = append(ops, clientv3.OpDelete(p.key))
	}
	if t.published && t.store.combines {
		ops = append(ops, clientv3.OpDelete(t.store.keys.batch(t.view.name, t.store.attempts.process)))
	}
	return ops
}
