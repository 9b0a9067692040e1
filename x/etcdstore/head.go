package etcdstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sema-go/sema/fleet/protocol"
)

// dataVersion is the version of the stored data. A higher one was written by a newer
// program.
const dataVersion = 1

// A head has the length of the log of a semaphore, its configuration and what is in use.
// Every write puts the head and compares its revision, which excludes concurrent writers.
// Lists read nothing else.
type head struct {
	Data   int    `json:"data"`
	Number uint64 `json:"entry"`    // of the last entry of the log
	Full   uint64 `json:"complete"` // of the last entry that has all of the state

	Config   configRow       `json:"config"`
	RampFrom int64           `json:"ramp_from,omitempty"`
	RampAt   protocol.Micros `json:"ramp_at,omitempty"`

	InUse      int64           `json:"in_use"`
	Leases     int64           `json:"leases"`
	Waiting    int64           `json:"waiting"`
	Sessions   int64           `json:"sessions"`
	SpentUntil protocol.Micros `json:"spent_until,omitempty"` // the time from which nothing of a rate is in use
	Changed    time.Time       `json:"changed"`

	Unreleased int `json:"format,omitempty"` // the data version of programs before the first release
}

func newHead(number, full uint64, im protocol.Image, load protocol.Summary, spentUntil protocol.Micros) head {
	return head{
		Data: dataVersion, Number: number, Full: full,
		Config: newConfigRow(im.Config), RampFrom: im.RampFrom, RampAt: im.RampAt,
		InUse: load.InUse, Leases: load.Leases, Waiting: load.Waiting, Sessions: load.Sessions, SpentUntil: spentUntil,
		Changed: time.UnixMicro(int64(im.Last)).UTC(),
	}
}

// parseHead checks the version first: the rest of another version may be unreadable.
func parseHead(found *mvccpb.KeyValue) (h head, err error) {
	err = json.Unmarshal(found.Value, &h)
	switch {
	case h.Unreleased != 0:
		return h, errUnreleased
	case h.Data != dataVersion && (err == nil || h.Data != 0):
		return h, fmt.Errorf("%w: it was written with data version %d, this program knows %d", protocol.ErrVersion, h.Data, dataVersion)
	case err != nil:
		return h, fmt.Errorf("its head: %w", err)
	}
	return h, nil
}

var errUnreleased = errors.New("it was created by an unreleased version of Sema; delete all keys with the prefix (etcdctl del --prefix) or use another prefix")

// inUse returns what is in use at a time.
func (h head) inUse(now protocol.Micros) int64 {
	if h.SpentUntil != 0 && h.SpentUntil <= now {
		return 0
	}
	return h.InUse
}

// summary returns the summary of the semaphore at a time, for lists.
func (h head) summary(name string, now protocol.Micros) (protocol.Summary, error) {
	// A state without sessions and leases, for the capacity now.
	state, err := protocol.Restore(protocol.Image{
		Config: h.Config.config(), RampFrom: h.RampFrom, RampAt: h.RampAt, Last: max(now, protocol.Micros(h.Changed.UnixMicro())),
	})
	if err != nil {
		return protocol.Summary{}, err
	}
	one := state.Summary(name)
	one.InUse, one.Leases, one.Waiting, one.Sessions = h.inUse(now), h.Leases, h.Waiting, h.Sessions
	return one, nil
}

// List implements [fleet.Store]. It reads one range of heads.
func (s *Store) List(ctx context.Context, q protocol.ListQuery) (page []protocol.Summary, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	client, err := s.connection.client(ctx)
	if err != nil {
		return nil, s.fault(err)
	}
	all := s.keys.head("")
	first := all + q.Prefix
	if q.After != "" {
		first = max(first, all+q.After+"\x00") // the next key in the order of bytes
	}
	r, err := client.Get(ctx, first, clientv3.WithRange(end(all+q.Prefix)), clientv3.WithLimit(int64(q.Most())))
	if err != nil {
		if isTimeout(err) {
			err = s.diagnose(err)
		}
		return nil, s.fault(err)
	}
	now := s.clock.time()
	for _, found := range r.Kvs {
		name := string(found.Key[len(all):])
		h, err := parseHead(found)
		if err != nil {
			return nil, s.fault(about(name, err))
		}
		one, err := h.summary(name, now)
		if err != nil {
			return nil, s.fault(about(name, fmt.Errorf("its head: %w", err)))
		}
		page = append(page, one)
	}
	return page, nil
}

// listTimeout bounds a list.
const listTimeout = 5 * time.Second
