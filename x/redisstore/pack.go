package redisstore

import (
	"encoding/binary"
	"errors"
	"math"
	"strconv"

	"github.com/sema-go/sema/fleet/protocol"
)

// Requests and replies consist of doubles, which are the numbers of Lua, and of strings
// preceded by their length. Redis's struct library reads these fastest.

// A packer is a buffer to which values are appended.
type packer []byte

func (p *packer) int(n int64) {
	*p = binary.LittleEndian.AppendUint64(*p, math.Float64bits(float64(n)))
}

func (p *packer) bool(b bool) {
	if b {
		p.int(1)
	} else {
		p.int(0)
	}
}

func (p *packer) string(s string) {
	*p = append(binary.LittleEndian.AppendUint32(*p, uint32(len(s))), s...)
}

var errUnpack = errors.New("redis: a reply is in an unknown format")

// An unpacker reads values from a string. After an error the values are meaningless.
type unpacker struct {
	rest string
	err  error
}

func (u *unpacker) fail() { u.rest, u.err = "", errUnpack }

func (u *unpacker) int() int64 {
	if len(u.rest) < 8 {
		u.fail()
		return 0
	}
	n := math.Float64frombits(binary.LittleEndian.Uint64([]byte(u.rest[:8])))
	u.rest = u.rest[8:]
	return int64(n)
}

// count reads a number of items. It fails if the number exceeds the number of bytes left.
func (u *unpacker) count() int64 {
	n := u.int()
	if n < 0 || n > int64(len(u.rest)) {
		u.fail()
		return 0
	}
	return n
}

func (u *unpacker) bool() bool { return u.int() != 0 }

func (u *unpacker) string() string {
	if len(u.rest) < 4 {
		u.fail()
		return ""
	}
	n := uint64(binary.LittleEndian.Uint32([]byte(u.rest[:4])))
	if uint64(len(u.rest)-4) < n {
		u.fail()
		return ""
	}
	s := u.rest[4 : 4+n]
	u.rest = u.rest[4+n:]
	return s
}

// The functions below read and write the formats of script/*.lua.

func packConfig(c protocol.Config) packer {
	var p packer
	for _, n := range []int64{int64(c.Kind), c.Capacity, c.Whole, c.Ramp, c.MaxWaiters, int64(c.TTL), int64(c.Window)} {
		p.int(n)
	}
	p.bool(c.Numbered)
	p.bool(c.Draining)
	p.int(int64(c.Version))
	p.int(int64(c.Protocol))
	return p
}

func (u *unpacker) config() protocol.Config {
	return protocol.Config{
		Kind: protocol.Kind(u.int()), Capacity: u.int(), Whole: u.int(), Ramp: u.int(), MaxWaiters: u.int(),
		TTL: protocol.Micros(u.int()), Window: protocol.Micros(u.int()), Numbered: u.bool(), Draining: u.bool(), Version: uint64(u.int()), Protocol: uint32(u.int()),
	}
}

// owner appends the key followed by the principal, so that the scripts compare both at
// once.
func (p *packer) owner(o protocol.Owner) { p.string(string(o.Key[:]) + o.Principal) }

// parseOwner parses the text that packer.owner writes.
func parseOwner(text string) (o protocol.Owner, err error) {
	if len(text) < len(o.Key) {
		return protocol.Owner{}, errUnpack
	}
	return protocol.Owner{Key: protocol.Key([]byte(text[:len(o.Key)])), Principal: text[len(o.Key):]}, nil
}

// unpackReply unpacks the reply of apply.lua to a batch and the epoch of the server.
func unpackReply(raw string, b protocol.Batch) (epoch int64, r protocol.Reply, err error) {
	u := &unpacker{rest: raw}
	if epoch = u.int(); epoch == 0 {
		return u.shortReply(b)
	}
	r.InUse = u.int()
	results := u.int()
	r.Status, r.More, r.Wanted, r.First = protocol.Status(u.int()), u.bool(), u.int(), u.int()
	r.Next, r.Recall, r.Share, r.Undecided = protocol.Micros(u.int()), u.bool(), u.int(), protocol.Micros(u.int())
	if u.rest == "" { // the semaphore does not exist
		return epoch, r, u.err
	}
	r.Config = u.config()
	if results < 0 || results > maxResults {
		u.fail()
	} else if results > 0 {
		r.Results = make([]protocol.Result, results)
		if granted := u.results(r.Results); granted > 0 {
			u.fences(r.Results, granted)
		}
	}
	return epoch, r, u.err
}

// shortReply unpacks the reply to a batch of the fast path, see SHORT in batch.lua. All acquires
// were granted, each with a lease of its own.
func (u *unpacker) shortReply(b protocol.Batch) (epoch int64, r protocol.Reply, err error) {
	epoch, r.InUse = u.int(), u.int()
	result, lease, gapless, floor := uint64(u.int()), protocol.Seq(u.int()), u.int(), protocol.Seq(u.int())
	r.Config = u.config()
	for i, op := range b.Ops {
		if op.Verb != protocol.Acquire {
			continue
		}
		if r.Results == nil {
			r.Results = make([]protocol.Result, 0, len(b.Ops)-i)
		}
		result, lease = result+1, lease+1
		f := protocol.Result{N: result, Kind: protocol.Granted, Lease: lease, Weight: op.Weight, Ticket: op.Ticket}
		if gapless >= 0 {
			f.Fence = fence(lease, floor, gapless == 1)
		}
		r.Results = append(r.Results, f)
	}
	if gapless < 0 {
		u.fences(r.Results, len(r.Results))
	}
	return epoch, r, u.err
}

// fence returns the fence of a lease without the ranges that were revoked. floor is the lowest live Seq,
// or 0 if it is unknown.
func fence(lease, floor protocol.Seq, exact bool) protocol.Fence {
	f := protocol.Fence{Seq: lease, Floor: lease, Exact: exact}
	if floor > 0 {
		f.Floor = min(lease, floor)
	}
	return f
}

// maxResults is the maximum number of results in a reply. It bounds the memory that a
// malformed reply can take.
const maxResults = 1 << 20

// results reads results and returns the number of grants among them.
func (u *unpacker) results(results []protocol.Result) (granted int) {
	for i := 0; i < len(results) && u.err == nil; {
		f := protocol.Result{N: uint64(u.int()), Kind: protocol.ResultKind(u.int()), Lease: protocol.Seq(u.int()), Weight: u.int()}
		count := u.int()
		ticket, err := strconv.ParseUint(u.string(), 10, 64)
		f.Ticket = protocol.Ticket(ticket)
		if text := u.string(); f.Kind == protocol.Granted {
			f.Slots = protocol.Slots(text)
		} else {
			f.Note = text
		}
		if err != nil || count < 1 || count > int64(len(results)-i) {
			u.fail()
			return 0
		}
		if f.Kind == protocol.Granted {
			granted += int(count)
		}
		for range count { // a run of grants
			results[i] = f
			i++
			f.N, f.Lease, f.Ticket = f.N+1, f.Lease+1, f.Ticket+1
		}
	}
	return granted
}

// fences reads the fences of the grants among the results. The fences share one slice of
// ranges: Revoked of a fence is a prefix of Revoked of the next.
func (u *unpacker) fences(results []protocol.Result, granted int) {
	exact, floor, ranges, marks := u.bool(), protocol.Seq(u.int()), u.count(), u.count()
	if marks != 0 && marks != int64(granted) {
		u.fail()
	}
	gone := make([]protocol.Range, ranges)
	for i := range gone {
		gone[i] = protocol.Range{From: protocol.Seq(u.int()), To: protocol.Seq(u.int())}
	}
	for i := range results {
		f := &results[i]
		if f.Kind != protocol.Granted {
			continue
		}
		f.Fence = fence(f.Lease, floor, exact)
		if marks == 0 {
			continue
		}
		upTo, tail := min(max(u.int(), 0), ranges), protocol.Seq(u.int())
		f.Fence.Revoked = gone[:upTo:upTo]
		if tail > 0 {
			f.Fence.Revoked = append(f.Fence.Revoked, protocol.Range{From: tail, To: f.Lease - 1})
		}
	}
}
