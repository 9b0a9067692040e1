package fleettest

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// histories is how many random ones an engine is led through.
const histories = 40

// oracleChecks compare an engine with the model, on histories in which time
// has no part.
var oracleChecks = []Check{
	check("behaves like the model", protocol.Config{Capacity: 5}, func(s *speaker) {
		for range histories {
			seed := rand.Uint64()
			h := newHistory(s, seed)
			for step := range 60 {
				if what, err := h.step(); err != nil {
					s.fail("history %d, step %d (%s): %w", seed, step, what, err)
				}
			}
		}
	}),
}

// A history is done to the engine and to the model alike.
type history struct {
	*speaker
	rng      *rand.Rand
	model    *protocol.State
	now      protocol.Micros
	sessions []pair
	leases   map[protocol.Seq]protocol.Seq // the model's name for a lease of the engine
	held     []holding
	last     map[protocol.Session]protocol.Batch // by the model's name
	ticket   protocol.Ticket
}

type pair struct{ engine, model protocol.Session }

type holding struct {
	by    int
	lease protocol.Seq // the engine's
}

func newHistory(s *speaker, seed uint64) *history {
	own := *s
	own.name = fmt.Sprintf("%s-%016x", s.name, seed)
	own.seqs, own.acks = map[protocol.Session]uint64{}, map[protocol.Session]uint64{}
	h := &history{
		speaker: &own, rng: rand.New(rand.NewPCG(seed, 0)), now: protocol.Micros(time.Now().UnixMicro()),
		leases: map[protocol.Seq]protocol.Seq{}, last: map[protocol.Session]protocol.Batch{},
	}
	model, err := protocol.New(h.now, s.config, 0)
	s.must(err)
	h.model = model
	for range 3 {
		h.begin()
	}
	return h
}

func (h *history) begin() {
	model, _, err := h.model.Open(h.now, "fleettest", protocol.Version)
	h.must(err)
	h.sessions = append(h.sessions, pair{h.open(), model})
}

func (h *history) step() (what string, err error) {
	h.now++
	i := h.rng.IntN(len(h.sessions))
	switch n := h.rng.IntN(20); {
	case n == 0:
		h.begin()
		return "open", nil
	case n == 1:
		return "configure", h.reconfigure()
	case n == 2:
		return "again", h.repeat(i)
	default:
		ops := h.wishes(i)
		return fmt.Sprintf("session %d: %+v", i, ops), h.speak(i, ops)
	}
}

func (h *history) reconfigure() error {
	capacity, draining := h.rng.Int64N(8), h.rng.IntN(6) == 0
	change := func(c *protocol.Config) { c.Capacity, c.Draining = capacity, draining }
	h.must(h.configure(change))
	c := h.model.Snapshot().Config
	change(&c)
	_, err := h.model.Configure(h.now, c)
	return err
}

// wishes are some things to want, in the engine's names.
func (h *history) wishes(i int) (ops []protocol.Op) {
	for range h.rng.IntN(4) {
		switch n := h.rng.IntN(10); {
		case n < 5:
			h.ticket++
			ops = append(ops, protocol.Op{Verb: protocol.Acquire, Ticket: h.ticket, Weight: h.rng.Int64N(4) + 1, Try: n == 0, Pooled: n == 1})
		case n < 6:
			ops = append(ops, cancel(protocol.Ticket(h.rng.Int64N(int64(h.ticket)+1))))
		case len(h.held) > 0:
			k := h.rng.IntN(len(h.held))
			if h.held[k].by == i {
				ops = append(ops, protocol.Op{Verb: protocol.Release, Lease: h.held[k].lease, Weight: h.rng.Int64N(3)})
			}
		}
	}
	return ops
}

// speak says a batch to both, and compares what they answer.
func (h *history) speak(i int, ops []protocol.Op) error {
	p := h.sessions[i]
	engineAck := h.acks[p.engine]
	fromEngine := h.say(p.engine, ops...)
	b := protocol.Batch{Session: p.model, Seq: h.seqs[p.engine], Ack: engineAck}
	for _, op := range ops {
		op.Lease = h.leases[op.Lease]
		b.Ops = append(b.Ops, op)
	}
	h.last[p.model] = b
	return h.compare(i, fromEngine, h.model.Apply(h.now, b))
}

func (h *history) repeat(i int) error {
	p := h.sessions[i]
	b, spoke := h.last[p.model]
	if !spoke {
		return nil
	}
	fromEngine := h.apply(protocol.Batch{Session: p.engine, Seq: b.Seq, Ack: b.Ack, Ops: []protocol.Op{acquire(1<<40, 1)}})
	return h.compare(i, fromEngine, h.model.Apply(h.now, b))
}

func (h *history) compare(i int, engine, model protocol.Reply) error {
	if engine.Verdict != model.Verdict || engine.Recall != model.Recall || len(engine.Fates) != len(model.Fates) {
		return fmt.Errorf("the engine says %+v, the model %+v", engine, model)
	}
	for k, f := range engine.Fates {
		m := model.Fates[k]
		if f.Kind != m.Kind || f.Ticket != m.Ticket || f.N != m.N {
			return fmt.Errorf("fate %d: the engine says %+v, the model %+v", k, f, m)
		}
		if _, known := h.leases[f.Lease]; f.Kind == protocol.Granted && !known {
			h.leases[f.Lease] = m.Lease
			h.held = append(h.held, holding{i, f.Lease})
		}
	}
	return h.compareStates()
}

func (h *history) compareStates() error {
	engine, model := h.inspect(), h.model.Snapshot()
	if engine.InUse != model.InUse || engine.Config != model.Config || len(engine.Leases) != len(model.Leases) {
		return fmt.Errorf("the engine has %+v, the model %+v", engine, model)
	}
	var lines [2][]protocol.Ticket
	for _, t := range engine.Line {
		lines[0] = append(lines[0], t.Ticket)
	}
	for _, t := range model.Line {
		lines[1] = append(lines[1], t.Ticket)
	}
	if !reflect.DeepEqual(lines[0], lines[1]) {
		return fmt.Errorf("the engine's line is %v, the model's %v", lines[0], lines[1])
	}
	return nil
}
