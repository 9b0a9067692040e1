package etcdstore

import (
	"strings"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sema-go/sema/fleet/protocol"
)

// Calls that others are asked to take along.
//
// Whoever fails to write has lost against somebody, and may lose again. So with
// its failure, in the same transaction, it puts its batches where the others see
// them when they fail. The next who succeeds applies them with its own, and the
// entry has the answers. Of however many processes contend, each is served in
// the second round or so, and nobody starves.
//
// It is safe since a batch is applied at most once: one that was taken along
// twice, or long after its caller has given up, is what a batch is that was
// doubled or delayed on its way.
const (
	maxAlong   = 16        // processes whose calls are taken along at a time
	maxCalls   = 8         // batches of one process
	maxCalling = 128 << 10 // bytes of them
	maxAnswers = 256 << 10 // bytes of answers in an entry
)

// asked is what a process asks others to take along.
type asked struct {
	key   string
	calls []publicCall
}

type publicCall struct {
	Name  string         `json:"name"`
	Batch protocol.Batch `json:"batch"`
}

// publication is what puts the batches where others see them, if there are to be
// any: of a semaphore that was deleted, nobody would clear them away.
func (t *turn) publication() []clientv3.Op {
	if t.published || !t.store.shares {
		return nil
	}
	var public []publicCall
	size := 0
	for _, c := range t.calls {
		if c.batch == nil {
			continue
		}
		if size += c.size; size > maxCalling || len(public) == maxCalls {
			break
		}
		if c.name == "" { // it stays: who was asked before may answer
			c.name = t.store.attempts.next()
		}
		public = append(public, publicCall{c.name, *c.batch})
	}
	if len(public) == 0 {
		return nil
	}
	k, name := t.store.keys, t.view.name
	return []clientv3.Op{clientv3.OpTxn(
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(k.head(name)), ">", 0)},
		[]clientv3.Op{clientv3.OpPut(k.call(name, t.store.attempts.process), pack(public))}, nil)}
}

func (t *turn) parseCalls(found []*mvccpb.KeyValue) (all []asked) {
	for _, kv := range found {
		a := asked{key: string(kv.Key)}
		if strings.HasSuffix(a.key, " "+t.store.attempts.process) {
			continue
		}
		if err := unpack(kv.Value, &a.calls); err != nil {
			a.calls = nil // of another version; it is cleared away
		}
		all = append(all, a)
	}
	return all
}

// takeAlong applies what others have asked for. It reports whether that went
// well: if it panics, the state is spoilt.
func (t *turn) takeAlong(now protocol.Micros) (answers []answer, ok bool) {
	defer func() {
		if recover() != nil {
			t.alone, ok = true, false // whoever asked finds out for itself
		}
	}()
	if t.view.state == nil || t.alone {
		t.others = nil
		return nil, true
	}
	size := 0
	for i, a := range t.others {
		if size > maxAnswers {
			t.others = t.others[:i]
			break
		}
		for _, c := range a.calls {
			reply := t.view.state.Apply(now, c.Batch)
			answers = append(answers, answer{c.Name, reply})
			for _, f := range reply.Results {
				size += 150 + 32*len(f.Fence.Revoked)
			}
		}
	}
	return answers, true
}

// answered clears away what was asked, by others and by this process.
func (t *turn) answered() (ops []clientv3.Op) {
	for _, a := range t.others {
		ops = append(ops, clientv3.OpDelete(a.key))
	}
	if t.published && t.store.shares {
		ops = append(ops, clientv3.OpDelete(t.store.keys.call(t.view.name, t.store.attempts.process)))
	}
	return ops
}
