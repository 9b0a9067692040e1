package redisstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/sema-go/sema/fleet/protocol"
)

// The names of all semaphores of a server are in a sorted set, so that a page of them is
// found without a scan of all keys. On one server the script changes it together with
// the semaphore. In a cluster it is on one node, and the semaphores are on all of them:
// there the client changes it, see enlist.
//
// A semaphore that nobody uses expires, and its name remains for a time: who reads
// the index skips names without a semaphore.

func (s *Store) names() string { return s.options.Prefix + "names" }

// scriptNames returns the index that the script changes; "" if it cannot.
func (s *Store) scriptNames() string {
	if s.options.Cluster {
		return ""
	}
	return s.names()
}

// List implements [fleet.Store]. It takes two round trips to each server: one for the
// names, and one for their semaphores. A capacity that rises is what it would be on
// this machine's clock.
func (s *Store) List(ctx context.Context, q protocol.ListQuery) ([]protocol.Summary, error) {
	var page []protocol.Summary
	for _, server := range s.servers {
		some, err := s.listServer(ctx, server, q)
		if err != nil {
			return nil, err
		}
		page = append(page, some...)
	}
	slices.SortFunc(page, func(a, b protocol.Summary) int { return cmp.Compare(a.Name, b.Name) })
	return page[:min(len(page), q.Most())], nil
}

// listServer returns the first semaphores of a server that the query selects. It takes
// further round trips if some names are stale.
func (s *Store) listServer(ctx context.Context, server *server, q protocol.ListQuery) (page []protocol.Summary, err error) {
	client := server.now()
	from, to := bounds(q)
	for len(page) < q.Most() {
		names, err := client.Do(ctx, client.B().Zrangebylex().Key(s.names()).Min(from).Max(to).Limit(0, int64(q.Most())).Build()).AsStrSlice()
		if err != nil {
			return nil, explain(ctx, server.address, err)
		}
		page, err = s.summarize(ctx, server, names, page)
		if err != nil {
			return nil, err
		}
		if len(names) < q.Most() {
			break
		}
		from = "(" + names[len(names)-1]
	}
	return page, nil
}

// bounds returns the range of names of a query, as ZRANGEBYLEX has it.
func bounds(q protocol.ListQuery) (from, to string) {
	from, to = "["+q.Prefix, "+"
	if q.After >= q.Prefix {
		from = "(" + q.After
	}
	for end := len(q.Prefix); end > 0; end-- { // the first text that is higher than all with the prefix
		if last := q.Prefix[end-1]; last < 0xff {
			to = "(" + q.Prefix[:end-1] + string([]byte{last + 1})
			break
		}
	}
	return from, to
}

// summarize appends the semaphores with these names to a page. Of several servers, a
// semaphore counts on that which clients use for it.
func (s *Store) summarize(ctx context.Context, server *server, names []string, page []protocol.Summary) ([]protocol.Summary, error) {
	client := server.now()
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return s.serverOf(name) != server })
	reads := make(rueidis.Commands, len(names))
	for i, name := range names {
		reads[i] = client.B().Hmget().Key(s.place(name).keys[0]).Field("config", stateField).Build()
	}
	now := protocol.Micros(time.Now().UnixMicro())
	for i, result := range client.DoMulti(ctx, reads...) {
		values, err := result.ToArray()
		if err != nil {
			return nil, explain(ctx, server.address, err)
		}
		config, absent := values[0].ToString()
		state, unread := values[1].ToString()
		switch {
		case absent != nil:
			continue
		case unread != nil:
			return nil, about(names[i], errOtherRelease)
		}
		one, err := unpackSummary(now, config, state)
		if err != nil {
			return nil, about(names[i], err)
		}
		one.Name = names[i]
		page = append(page, one)
	}
	return page, nil
}

// stateField is STATE in script/1_state.lua.
const stateField = "data1"

// unpackSummary reads what a semaphore's hash contains: HOT and COLD of
// script/1_state.lua.
func unpackSummary(now protocol.Micros, config, state string) (one protocol.Summary, err error) {
	u := &unpacker{rest: config}
	one.Config = u.config()
	if u.err != nil {
		return one, u.err
	}
	u.rest = state
	var n [16]int64
	for i := range n {
		n[i] = u.int()
	}
	if u.err != nil {
		return one, u.err
	}
	last, rampFrom, rampAt := protocol.Micros(n[1]), n[14], protocol.Micros(n[15])
	one.InUse, one.Leases, one.Sessions, one.Waiting = n[4], n[6], n[9], n[11]
	rising, err := protocol.Restore(protocol.Image{Config: one.Config, RampFrom: rampFrom, RampAt: rampAt, Last: max(last, now)})
	if err != nil {
		return one, err
	}
	one.Effective = rising.Snapshot().Effective
	return one, nil
}

// indexTimeout bounds how long the index of a cluster delays a call when its node is
// down.
const indexTimeout = time.Second

// enlist adds a name to the index of a cluster, after its semaphore was opened, and
// removes a few stale names if it is new. It ignores errors: the next
// client that opens the semaphore tries it again, and until then a list lacks it.
func (s *Store) enlist(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, indexTimeout)
	defer cancel()
	client := s.servers[0].now()
	added, err := client.Do(ctx, client.B().Zadd().Key(s.names()).ScoreMember().ScoreMember(0, name).Build()).AsInt64()
	if err != nil || added == 0 {
		return
	}
	some, err := client.Do(ctx, client.B().Zrandmember().Key(s.names()).Count(4).Build()).AsStrSlice()
	if err != nil {
		return
	}
	reads := make(rueidis.Commands, len(some))
	for i, other := range some {
		reads[i] = client.B().Exists().Key(s.place(other).keys[0]).Build()
	}
	for i, result := range client.DoMulti(ctx, reads...) {
		if n, err := result.AsInt64(); err == nil && n == 0 {
			s.unlist(ctx, some[i])
		}
	}
}

// unlist removes the name of a semaphore that is gone from the index of a cluster. Then
// it looks for the semaphore, and adds the name again if there is one: it may have been
// created meanwhile. If it is created after that, its client adds the name after that,
// too. It ignores errors, since who reads the index skips such names.
func (s *Store) unlist(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, indexTimeout)
	defer cancel()
	client := s.servers[0].now()
	if client.Do(ctx, client.B().Zrem().Key(s.names()).Member(name).Build()).Error() != nil {
		return
	}
	n, err := client.Do(ctx, client.B().Exists().Key(s.place(name).keys[0]).Build()).AsInt64()
	if err != nil || n > 0 {
		_ = client.Do(ctx, client.B().Zadd().Key(s.names()).ScoreMember().ScoreMember(0, name).Build()).Error()
	}
}
