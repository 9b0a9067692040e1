package redisstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/sema-go/sema/fleet/protocol"
)

// The index is a sorted set with the names of all semaphores of a server. With it, a page
// of names is found without a scan of all keys. On a single server the script updates the
// index together with the semaphore. In a cluster the index is on one node and the
// semaphores are on all nodes, so the client updates it; see addName.
//
// An unused semaphore expires, and its name remains in the index for some time. Readers
// of the index skip names without a semaphore.

// names returns the key of the index.
func (s *Store) names() string { return s.options.Prefix + "names" }

// scriptNames returns the key of the index if the script updates it, or "" if the client
// does.
func (s *Store) scriptNames() string {
	if s.options.Cluster {
		return ""
	}
	return s.names()
}

// List implements [fleet.Store]. It takes two round trips to each server: one for the
// names, and one for the semaphores. During a ramp it computes the effective capacity
// from this machine's clock.
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

// listServer returns the first semaphores of a server that match the query. It takes
// additional round trips if some names are stale.
func (s *Store) listServer(ctx context.Context, server *server, q protocol.ListQuery) (page []protocol.Summary, err error) {
	client := server.current()
	from, to := bounds(q)
	for len(page) < q.Most() {
		names, err := client.Do(ctx, client.B().Zrangebylex().Key(s.names()).Min(from).Max(to).Limit(0, int64(q.Most())).Build().ToPipe()).AsStrSlice()
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

// bounds returns the range of names of a query, as arguments of ZRANGEBYLEX.
func bounds(q protocol.ListQuery) (from, to string) {
	from, to = "["+q.Prefix, "+"
	if q.After >= q.Prefix {
		from = "(" + q.After
	}
	for end := len(q.Prefix); end > 0; end-- { // find the lowest text above all texts with the prefix
		if last := q.Prefix[end-1]; last < 0xff {
			to = "(" + q.Prefix[:end-1] + string([]byte{last + 1})
			break
		}
	}
	return from, to
}

// summarize appends the semaphores with these names to a page. It skips names that
// belong to another server.
func (s *Store) summarize(ctx context.Context, server *server, names []string, page []protocol.Summary) ([]protocol.Summary, error) {
	client := server.current()
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return s.serverOf(name) != server })
	reads := make(rueidis.Commands, len(names))
	for i, name := range names {
		reads[i] = client.B().Hmget().Key(s.location(name).keys[0]).Field("config", stateField, "cold").Build().ToPipe()
	}
	now := protocol.Micros(time.Now().UnixMicro())
	for i, result := range client.DoMulti(ctx, reads...) {
		values, err := result.ToArray()
		if err != nil {
			return nil, explain(ctx, server.address, err)
		}
		config, absent := values[0].ToString()
		state, unread := values[1].ToString()
		cold, missing := values[2].ToString()
		switch {
		case absent != nil:
			continue
		case unread != nil || missing != nil:
			return nil, withName(names[i], errOtherRelease)
		}
		one, err := unpackSummary(now, config, state+cold)
		if err != nil {
			return nil, withName(names[i], err)
		}
		one.Name = names[i]
		page = append(page, one)
	}
	return page, nil
}

// stateField is STATE in script/1_state.lua.
const stateField = "data2"

// unpackSummary unpacks the configuration and the state of a semaphore, which is in the
// formats HOT and COLD of script/1_state.lua.
func unpackSummary(now protocol.Micros, config, state string) (one protocol.Summary, err error) {
	u := &unpacker{rest: config}
	one.Config = u.config()
	if u.err != nil {
		return one, u.err
	}
	u.rest = state
	var n [17]int64
	for i := range n {
		n[i] = u.int()
	}
	if u.err != nil {
		return one, u.err
	}
	last, rampFrom, rampAt := protocol.Micros(n[1]), n[15], protocol.Micros(n[16])
	one.InUse, one.Leases, one.Sessions, one.Waiting = n[4], n[6], n[10], n[12]
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

// addName adds a name to the index of a cluster after the semaphore was opened. If the
// name is new, addName also removes a few stale names. It ignores errors: the next client
// that opens the semaphore adds the name, and lists lack it until then.
func (s *Store) addName(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, indexTimeout)
	defer cancel()
	client := s.servers[0].current()
	added, err := client.Do(ctx, client.B().Zadd().Key(s.names()).ScoreMember().ScoreMember(0, name).Build().ToPipe()).AsInt64()
	if err != nil || added == 0 {
		return
	}
	some, err := client.Do(ctx, client.B().Zrandmember().Key(s.names()).Count(4).Build().ToPipe()).AsStrSlice()
	if err != nil {
		return
	}
	reads := make(rueidis.Commands, len(some))
	for i, other := range some {
		reads[i] = client.B().Exists().Key(s.location(other).keys[0]).Build().ToPipe()
	}
	for i, result := range client.DoMulti(ctx, reads...) {
		if n, err := result.AsInt64(); err == nil && n == 0 {
			s.removeName(ctx, some[i])
		}
	}
}

// removeName removes the name of a missing semaphore from the index of a cluster. It then
// checks whether the semaphore exists, because another client may have created it
// meanwhile, and if so adds the name again. A client that creates the semaphore after
// this check also adds the name after it. removeName ignores errors, since readers of the
// index skip stale names.
func (s *Store) removeName(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, indexTimeout)
	defer cancel()
	client := s.servers[0].current()
	if client.Do(ctx, client.B().Zrem().Key(s.names()).Member(name).Build().ToPipe()).Error() != nil {
		return
	}
	n, err := client.Do(ctx, client.B().Exists().Key(s.location(name).keys[0]).Build().ToPipe()).AsInt64()
	if err != nil || n > 0 {
		_ = client.Do(ctx, client.B().Zadd().Key(s.names()).ScoreMember().ScoreMember(0, name).Build().ToPipe()).Error()
	}
}
