package etcdstore

import (
	"cmp"
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/fleettest"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/storetest/etcdtest"
)

// A clocked store has a clock that can be set, as if etcd had one.
type clocked struct {
	*Store
	*fleettest.Clock
}

// openURL opens the store of a URL. A prefix that is not empty replaces that of the URL.
func openURL(t *testing.T, text, prefix string) *Store {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	o, err := parse(u)
	if err != nil {
		t.Fatal(err)
	}
	o.Prefix = cmp.Or(prefix, o.Prefix)
	return openBy(t, o)
}

func TestStore_Conforms(t *testing.T) {
	t.Parallel()
	url := etcdtest.Shared.URL(t)
	fleettest.Suite{Histories: *histories, Open: func(t *testing.T) fleet.Store {
		store := openURL(t, url, "here/")
		clock := &fleettest.Clock{}
		store.clock.fixed = func() protocol.Micros { return protocol.Micros(clock.Now().UnixMicro()) }
		return clocked{store, clock}
	}}.Run(t)
}

func TestStore_ConformsByTheMeasuredTime(t *testing.T) {
	t.Parallel()
	if *histories <= fewHistories {
		t.Skip("TestStore_ConformsFromSeveralProcesses measures time as well; see the flag histories")
	}
	url := etcdtest.Shared.URL(t)
	fleettest.Suite{Histories: *histories, TTL: 400 * time.Millisecond, Open: func(t *testing.T) fleet.Store { return openURL(t, url, "") }}.Run(t)
}

// TestStore_ConformsFromSeveralProcesses has sessions in three stores. Each of them learns
// of the writes of the others from etcd only.
func TestStore_ConformsFromSeveralProcesses(t *testing.T) {
	t.Parallel()
	url := etcdtest.Shared.URL(t)
	fleettest.Suite{Histories: *histories, TTL: time.Second, Open: func(t *testing.T) fleet.Store {
		return &several{Store: openURL(t, url, ""), others: []*Store{openURL(t, url, ""), openURL(t, url, "")}}
	}}.Run(t)
}

// several is a store that distributes the sessions over several stores.
type several struct {
	*Store // also for Inspect and List
	others []*Store
}

func (s *several) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	if i := int(b.Session) % (1 + len(s.others)); i > 0 {
		return s.others[i-1].Apply(ctx, name, b)
	}
	return s.Store.Apply(ctx, name, b)
}

func (s *several) Listen(ctx context.Context, instance string, notify func(string)) error {
	return s.others[0].Listen(ctx, instance, notify)
}

func (s *several) Administer(ctx context.Context, name string, c fleet.Command) error {
	return s.others[1].Administer(ctx, name, c)
}

func (s *several) Close() error { return nil } // the test closes them
