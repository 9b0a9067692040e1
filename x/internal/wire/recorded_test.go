package wire_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"os"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/internal/wire"
	"github.com/sema-go/sema/x/semav1"
)

var record = flag.Bool("record", false, "write testdata/v1.json again; only before version 1 is published")

// recorded is the file with requests of version 1 and the replies to them.
const recorded = "testdata/v1.json"

// An exchange is one recorded call.
type exchange struct {
	Why     string          `json:"why"`
	At      int64           `json:"at"` // the store's clock, in microseconds
	Open    string          `json:"open,omitempty"`
	Apply   string          `json:"apply,omitempty"`
	Command string          `json:"command,omitempty"`
	Reply   json.RawMessage `json:"reply"`
}

// TestVersion1_IsServed replays requests as clients of version 1 encode them. The replies
// must contain all recorded fields: a server may add fields, and must not change or omit
// any. If this fails, the change breaks deployed clients: undo it, or raise
// protocol.Version and follow docs/protocol.md, "Versions".
func TestVersion1_IsServed(t *testing.T) {
	t.Parallel()
	if *record {
		writeRecording(t)
	}
	text, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	var all []exchange
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	var now time.Time
	store := memstore.NewWithClock(func() time.Time { return now })
	for _, e := range all {
		now = time.UnixMicro(e.At)
		reply := e.send(t, store)
		if !has(parse(t, reply), parse(t, e.Reply)) {
			t.Errorf("%s:\n got %s\nwant %s", e.Why, reply, e.Reply)
		}
	}
	if len(all) < 20 {
		t.Errorf("only %d exchanges are recorded", len(all))
	}
}

// send decodes the request, passes it to the store and returns the reply as JSON.
func (e exchange) send(t *testing.T, store *memstore.Store) json.RawMessage {
	t.Helper()
	var reply proto.Message
	switch {
	case e.Open != "":
		m := decode(t, e.Open, &semav1.StoreOpenRequest{})
		by := protocol.Opener{Client: wire.ReadClient(m.Client), Highest: protocol.Seq(m.Highest), MustExist: m.MustExist}
		copy(by.Owner.Key[:], m.Key)
		session, config, err := store.Open(context.Background(), m.Name, wire.ReadConfig(m.Config), by)
		if err != nil {
			t.Fatalf("%s: %v", e.Why, err)
		}
		reply = &semav1.StoreOpenResponse{Session: uint64(session), Config: wire.ConfigOf(config)}
	case e.Command != "":
		m := decode(t, e.Command, &semav1.StoreAdministerRequest{})
		c, known := wire.ReadCommand(m)
		if !known {
			t.Fatalf("%s: the command is unknown", e.Why)
		}
		if err := store.Administer(context.Background(), m.Name, c); err != nil {
			t.Fatalf("%s: %v", e.Why, err)
		}
		reply = &semav1.StoreAdministerResponse{}
	default:
		m := decode(t, e.Apply, &semav1.StoreApplyRequest{})
		b, err := wire.ReadBatch(m)
		if err != nil {
			t.Fatalf("%s: %v", e.Why, err)
		}
		r, err := store.Apply(context.Background(), m.Name, b)
		if err != nil {
			t.Fatalf("%s: %v", e.Why, err)
		}
		reply = wire.ReplyOf(r)
	}
	text, err := protojson.Marshal(reply)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func decode[M proto.Message](t *testing.T, text string, into M) M {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
	return into
}

func parse(t *testing.T, text json.RawMessage) (value any) {
	t.Helper()
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// has reports whether a reply contains all recorded fields.
func has(reply, recorded any) bool {
	switch want := recorded.(type) {
	case map[string]any:
		got, ok := reply.(map[string]any)
		for key, value := range want {
			ok = ok && has(got[key], value)
		}
		return ok
	case []any:
		got, ok := reply.([]any)
		ok = ok && len(got) == len(want)
		for i, value := range want {
			ok = ok && has(got[i], value)
		}
		return ok
	}
	return reply == recorded
}

// writeRecording writes the file from a script that uses each verb, status and result.
func writeRecording(t *testing.T) {
	t.Helper()
	const start, second = int64(1_700_000_000_000_000), int64(1_000_000)
	now := start
	store := memstore.NewWithClock(func() time.Time { return time.UnixMicro(now) })
	var all []exchange
	add := func(why string, m proto.Message) json.RawMessage {
		raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		e := exchange{Why: why, At: now}
		switch text := base64.StdEncoding.EncodeToString(raw); m.(type) {
		case *semav1.StoreOpenRequest:
			e.Open = text
		case *semav1.StoreApplyRequest:
			e.Apply = text
		default:
			e.Command = text
		}
		e.Reply = e.send(t, store)
		all = append(all, e)
		return e.Reply
	}
	key := protocol.Key([]byte("sixteen-bytes!!!"))
	open := func(why, name string, c protocol.Config) uint64 {
		c.TTL, c.Protocol = protocol.Micros(15*second), 1
		client := protocol.Client{Instance: "web-1/4711/00c0ffee", Kind: "program", Host: "web-1", Process: 4711}
		reply := &semav1.StoreOpenResponse{}
		err := protojson.Unmarshal(add(why, &semav1.StoreOpenRequest{Name: name, Config: wire.ConfigOf(c), Client: wire.ClientOf(client), Key: key[:]}), reply)
		if err != nil {
			t.Fatal(err)
		}
		return reply.Session
	}
	seqs := map[uint64]uint64{}
	send := func(why, name string, session uint64, b protocol.Batch) *semav1.StoreApplyResponse {
		if b.Seq == 0 {
			seqs[session]++
			b.Seq = seqs[session]
		}
		b.Session, b.Owner.Key = protocol.Session(session), key
		reply := &semav1.StoreApplyResponse{}
		if err := protojson.Unmarshal(add(why, wire.BatchOf(name, b)), reply); err != nil {
			t.Fatal(err)
		}
		return reply
	}
	apply := func(why, name string, session uint64, ack uint64, ops ...protocol.Op) *semav1.StoreApplyResponse {
		return send(why, name, session, protocol.Batch{Ack: ack, Ops: ops})
	}
	ticket := protocol.Ticket(0)
	acquire := func(weight int64) protocol.Op {
		ticket++
		return protocol.Op{Verb: protocol.Acquire, Ticket: ticket, Weight: weight,
			Details: &protocol.Details{Site: "main.go:44", Labels: "job=nightly", Holder: "worker 3", By: "ci", Key: "00ff"}}
	}
	try := func(weight int64) protocol.Op { op := acquire(weight); op.Try = true; return op }

	db := open("a client opens", "db", protocol.Config{Capacity: 4, MaxWaiters: 2})
	other := open("another client opens", "db", protocol.Config{Capacity: 9})
	granted := apply("acquire", "db", db, 0, acquire(2), acquire(1))
	first := protocol.Seq(granted.Results[0].Lease)
	send("the same batch again", "db", db, protocol.Batch{Seq: 1})
	waits := acquire(3)
	apply("acquire that is queued, with a deadline", "db", other, 0, func() protocol.Op { op := waits; op.Wait = protocol.Micros(60 * second); return op }())
	apply("rejections: full, too large, invalid", "db", other, 0, try(4), acquire(5), acquire(0), protocol.Op{Verb: 77, Ticket: 1000})
	apply("queue full", "db", other, 4, acquire(1), acquire(1))
	apply("split and release in part", "db", db, 2, protocol.Op{Verb: protocol.Split, Ticket: 500, Lease: first, Weight: 1}, protocol.Op{Verb: protocol.Release, Lease: protocol.Seq(granted.Results[1].Lease), Weight: 1})
	apply("cancel", "db", other, 9, protocol.Op{Verb: protocol.Cancel, Ticket: waits.Ticket})
	now += 5 * second
	apply("heartbeat", "db", db, 3)
	send("an old batch", "db", db, protocol.Batch{Seq: 1})
	apply("release", "db", db, 3, protocol.Op{Verb: protocol.Release, Lease: first})
	send("the highest Seq that was seen", "db", db, protocol.Batch{Highest: first + 1000})
	apply("a grant after it", "db", db, 3, acquire(1))
	send("the end of a session", "db", other, protocol.Batch{End: true})
	send("a batch after the end", "db", other, protocol.Batch{})

	pooled := open("blocks", "pool", protocol.Config{Capacity: 10})
	block := acquire(8)
	block.Pooled, block.Least = true, 2
	apply("a block", "pool", pooled, 0, block)
	competitor := open("a competitor", "pool", protocol.Config{Capacity: 10})
	apply("which waits", "pool", competitor, 0, acquire(5))
	apply("so that the block is recalled", "pool", pooled, 1)

	api := open("a rate", "api", protocol.Config{Kind: protocol.Rate, Window: protocol.Micros(second), Capacity: 5})
	spent := apply("spend", "api", api, 0, acquire(4), acquire(3))
	apply("settle", "api", api, 1, protocol.Op{Verb: protocol.Settle, Ticket: 900, Lease: protocol.Seq(spent.Results[0].Lease), Least: 4, Weight: 1})
	now += 2 * second
	apply("the window has passed", "api", api, 2, acquire(5))

	gpu := open("numbered permits", "gpu", protocol.Config{Capacity: 8, Numbered: true})
	slots := apply("slots", "gpu", gpu, 0, acquire(2), acquire(3))
	apply("slots again", "gpu", gpu, 2, protocol.Op{Verb: protocol.Release, Lease: protocol.Seq(slots.Results[0].Lease)}, acquire(1))

	none := open("nothing is queued", "none", protocol.Config{Capacity: 1, MaxWaiters: protocol.NoWaiters})
	apply("granted or rejected", "none", none, 0, acquire(1), acquire(1))

	short := open("deadlines, drains and revocations", "short", protocol.Config{Capacity: 1})
	held := apply("the only permit", "short", short, 0, acquire(1))
	late := acquire(1)
	late.Wait = protocol.Micros(second)
	apply("a deadline of a second", "short", short, 1, late)
	now += 2 * second
	apply("has passed", "short", short, 1)
	apply("one waits", "short", short, 2, acquire(1))
	drained := protocol.Config{Capacity: 1, TTL: protocol.Micros(15 * second), Draining: true, Version: 1, Protocol: 1}
	add("drain", wire.CommandOf("short", fleet.Command{Configure: &drained}))
	apply("and is rejected", "short", short, 2)
	add("revoke", wire.CommandOf("short", fleet.Command{Revoke: &fleet.Revocation{Lease: protocol.Seq(held.Results[0].Lease), By: "ops", Why: "stuck"}}))
	apply("the holder is notified", "short", short, 3)
	add("delete", wire.CommandOf("short", fleet.Command{Delete: true, DeleteVersion: 2}))

	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(recorded, append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
