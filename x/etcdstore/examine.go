package etcdstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sema-go/sema/fleet"
)

// Ping implements [fleet.Examiner]. It makes a linearizable read, to which a majority has
// to agree. The time is zero, as no clock of etcd is used.
func (s *Store) Ping(ctx context.Context) (time.Time, error) {
	client, err := s.connection.client(ctx)
	if err == nil {
		_, err = client.Get(ctx, s.keys.head(""), clientv3.WithCountOnly())
	}
	if err != nil {
		if isTimeout(err) {
			err = s.diagnose(err)
		}
		return time.Time{}, s.fault(err)
	}
	return time.Time{}, nil
}

// Examine implements [fleet.Examiner]. It writes a key of its own several times, and
// removes it.
func (s *Store) Examine(ctx context.Context) ([]fleet.Finding, error) {
	client, err := s.connection.client(ctx)
	if err != nil {
		return nil, s.fault(err)
	}
	list, err := client.MemberList(ctx)
	if err != nil {
		return nil, s.fault(err)
	}
	c := clusterState{members: list.Members, named: s.connection.config.Endpoints, replies: queryMembers(ctx, client, list.Members, s.connection.config.Endpoints)}
	all := []fleet.Finding{c.version(), c.quorum(), c.endpoints(), c.size()}
	return append(all, alarms(ctx, client), s.disk(ctx, client)), nil
}

// A clusterState is the state of the members as they report it.
type clusterState struct {
	members []*etcdserverpb.Member
	named   []string                            // in the URL
	replies map[uint64]*clientv3.StatusResponse // by member
}

// queryMembers queries each known address of a cluster: those in the URL and those that
// its members report.
func queryMembers(ctx context.Context, client *clientv3.Client, members []*etcdserverpb.Member, named []string) map[uint64]*clientv3.StatusResponse {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	addresses := slices.Clone(named)
	for _, m := range members {
		for _, u := range m.ClientURLs {
			_, address, _ := strings.Cut(u, "://")
			addresses = append(addresses, address)
		}
	}
	slices.Sort(addresses)
	var (
		mu      sync.Mutex
		wg      sync.WaitGroup
		replies = map[uint64]*clientv3.StatusResponse{}
	)
	for _, address := range slices.Compact(addresses) {
		wg.Go(func() {
			reply, err := client.Status(ctx, address)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			replies[reply.Header.MemberId] = reply
		})
	}
	wg.Wait()
	return replies
}

// memberTimeout bounds the wait for the reply of a member.
const memberTimeout = 2 * time.Second

func (c clusterState) version() fleet.Finding {
	var versions []string
	for _, a := range c.replies {
		versions = append(versions, a.Version)
	}
	slices.Sort(versions)
	versions = slices.Compact(versions)
	f := fleet.Finding{Check: "version", Level: fleet.LevelOK, Seen: "etcd " + strings.Join(versions, ", ")}
	if len(versions) > 1 {
		f.Level, f.Advice = fleet.LevelWarning, "finish the upgrade: all members should have one version"
	}
	return f
}

func (c clusterState) quorum() fleet.Finding {
	voters, there, leader := 0, 0, false
	var missing []string
	for _, m := range c.members {
		if m.IsLearner {
			continue
		}
		voters++
		if a := c.replies[m.ID]; a != nil {
			there++
			leader = leader || a.Leader != 0
		} else {
			missing = append(missing, fmt.Sprintf("%s (%s)", m.Name, strings.Join(m.ClientURLs, ", ")))
		}
	}
	majority := voters/2 + 1
	f := fleet.Finding{Check: "quorum", Level: fleet.LevelOK, Seen: fmt.Sprintf("%d of %d members reply, %d are a majority", there, voters, majority)}
	switch {
	case there < majority || !leader:
		f.Level, f.Advice = fleet.LevelProblem, "there are no replies without a majority; start "+strings.Join(missing, ", ")
	case there < voters:
		f.Level, f.Advice = fleet.LevelWarning, fmt.Sprintf("%d more may fail; start %s, or check the network between here and there", there-majority, strings.Join(missing, ", "))
	case voters%2 == 0:
		f.Level, f.Advice = fleet.LevelWarning, fmt.Sprintf("an even number of members tolerates no more failures than %d members; add or remove one", voters-1)
	}
	return f
}

func (c clusterState) endpoints() fleet.Finding {
	f := fleet.Finding{Check: "endpoints", Level: fleet.LevelOK, Seen: fmt.Sprintf("the URL names %d of %d members", min(len(c.named), len(c.members)), len(c.members))}
	if len(c.named) < len(c.members) {
		f.Level, f.Advice = fleet.LevelWarning, "name all of them: otherwise programs stop with the ones that are named"
	}
	return f
}

// usualQuota is the quota of a member with default settings.
const usualQuota = 2 << 30

func (c clusterState) size() fleet.Finding {
	var largest, used, quota int64
	for _, a := range c.replies {
		if a.DbSize >= largest {
			largest, used, quota = a.DbSize, a.DbSizeInUse, a.DbSizeQuota
		}
	}
	const mb = 1 << 20
	f := fleet.Finding{Check: "database size", Level: fleet.LevelOK, Seen: fmt.Sprintf("%d MB, %d MB of it in use", largest/mb, used/mb)}
	limit := quota
	if limit == 0 {
		limit = usualQuota // older members do not report theirs
	}
	switch {
	case largest > limit/4*3:
		f.Level, f.Seen = fleet.LevelWarning, f.Seen+fmt.Sprintf(", and at %d MB (or the --quota-backend-bytes of the members) every acquire is rejected", limit/mb)
		f.Advice = "etcdctl compact, etcdctl defrag; and let it compact by itself: --auto-compaction-mode=periodic --auto-compaction-retention=5m"
	case largest > 100*mb && used < largest/3:
		f.Level, f.Advice = fleet.LevelWarning, "etcdctl defrag, member by member"
	}
	return f
}

func alarms(ctx context.Context, client *clientv3.Client) fleet.Finding {
	r, err := client.AlarmList(ctx)
	switch {
	case err != nil:
		return fleet.Finding{Check: "alarms", Level: fleet.LevelWarning, Seen: fmt.Sprintf("cannot be read: %v", err), Advice: "where there are users, only root may read them"}
	case len(r.Alarms) == 0:
		return fleet.Finding{Check: "alarms", Level: fleet.LevelOK, Seen: "none"}
	}
	f := fleet.Finding{Check: "alarms", Level: fleet.LevelProblem, Advice: "see etcdctl alarm list"}
	var seen []string
	for _, a := range r.Alarms {
		seen = append(seen, fmt.Sprintf("%v at member %x", a.Alarm, a.MemberID))
		if a.Alarm == etcdserverpb.AlarmType_NOSPACE {
			f.Advice = "its database is full: etcdctl compact, etcdctl defrag, then etcdctl alarm disarm"
		}
	}
	f.Seen = strings.Join(seen, ", ")
	return f
}

// disk returns the finding about the duration of a write, which is mostly the time until a
// majority has it on disk.
func (s *Store) disk(ctx context.Context, client *clientv3.Client) fleet.Finding {
	const writes, slow = 10, 25 * time.Millisecond
	f := fleet.Finding{Check: "disk", Level: fleet.LevelOK}
	key := s.keys.prefix + "examined"
	var took []time.Duration
	for range writes {
		start := time.Now()
		if _, err := client.Put(ctx, key, ""); err != nil {
			f.Level, f.Seen, f.Advice = fleet.LevelProblem, fmt.Sprintf("it cannot be written to: %v", s.fault(err)), "see the finding about alarms"
			return f
		}
		took = append(took, time.Since(start))
	}
	if _, err := client.Delete(ctx, key); err != nil {
		f.Level, f.Seen, f.Advice = fleet.LevelWarning, fmt.Sprintf("key %q was written and cannot be removed: %v", key, s.fault(err)), "etcdctl del "+key
		return f
	}
	slices.Sort(took)
	f.Seen = fmt.Sprintf("a write takes %v, at worst %v", took[writes/2].Round(10*time.Microsecond), took[writes-1].Round(10*time.Microsecond))
	if took[writes/2] > slow {
		f.Level, f.Advice = fleet.LevelWarning, fmt.Sprintf("want less than %v; give its members faster disks of their own, or check the network between them", slow)
	}
	return f
}
