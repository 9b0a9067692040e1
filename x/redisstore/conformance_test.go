package redisstore

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/fleettest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// A clocked store runs a program that reads the time from a key, if the key exists.
type clocked struct {
	*Store
	key string
}

func openClocked(t *testing.T, url string) *clocked {
	s := &clocked{openURL(t, url), fmt.Sprintf("clock-%x", rand.Uint64())}
	edit := strings.NewReplacer(
		"local time = call('TIME')", "local set = call('GET', '"+s.key+"')\nlocal time = set and { 0, set } or call('TIME')",
		// Keys do not expire by this clock, so gaps in it mean nothing. Other stores of
		// the server have other clocks.
		"local LONG = WEEK / 2", "local LONG = NEVER", ":used'", ":used-"+s.key+"'")
	s.program = assemble(edit.Replace)
	return s
}

// SetClock implements [fleettest.Clocked].
func (c *clocked) SetClock(at time.Time) {
	client := c.servers[0].current()
	command := client.B().Set().Key(c.key).Value(fmt.Sprint(at.UnixMicro())).Build()
	if at.IsZero() {
		command = client.B().Del().Key(c.key).Build()
	}
	if err := client.Do(ctx, command).Error(); err != nil {
		panic(err)
	}
}

func TestStore_Conforms(t *testing.T) {
	t.Parallel()
	url := redistest.Shared.URL(t)
	fleettest.Suite{Histories: *histories, Open: func(t *testing.T) fleet.Store { return openClocked(t, url) }}.Run(t)
}

func TestStore_ConformsByTheRealClock(t *testing.T) {
	t.Parallel()
	url := redistest.Shared.URL(t)
	fleettest.Suite{Histories: *histories, TTL: 600 * time.Millisecond, Open: func(t *testing.T) fleet.Store { return openURL(t, url) }}.Run(t)
}

// TestStore_ConformsAsAScript runs the suite on a server that does not allow clients to
// load functions, like one before version 7. Such a server runs the same text as a
// script.
func TestStore_ConformsAsAScript(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--rename-command", "FUNCTION", "")
	fleettest.Suite{Histories: *histories / 4, TTL: 600 * time.Millisecond, Open: func(t *testing.T) fleet.Store {
		s := openClocked(t, server.URL())
		t.Cleanup(func() {
			if !s.servers[0].scripted.Load() {
				t.Error("the program was not run as a script")
			}
		})
		return s
	}}.Run(t)
}

func TestStore_ConformsInACluster(t *testing.T) {
	t.Parallel()
	nodes := redistest.Cluster(t, 3)
	fleettest.Suite{Histories: *histories / 4, TTL: 600 * time.Millisecond, Open: func(t *testing.T) fleet.Store {
		return openAt(t, Options{Addresses: []string{nodes[1].Address}, Cluster: true})
	}}.Run(t)
}

func TestStore_ConformsOnShards(t *testing.T) {
	t.Parallel()
	a, b, c := redistest.Start(t), redistest.Start(t), redistest.Start(t)
	t.Run("suite", func(t *testing.T) {
		fleettest.Suite{Histories: *histories / 4, TTL: 600 * time.Millisecond, Open: func(t *testing.T) fleet.Store {
			return openAt(t, Options{Addresses: []string{a.Address, b.Address, c.Address}, Sharded: true})
		}}.Run(t)
	})
	for _, server := range []*redistest.Server{a, b, c} {
		if n := server.Must("DBSIZE"); n == "0" {
			t.Errorf("server %s has no keys", server.Address)
		}
	}
}

// permissions are those that a user needs according to the package's documentation.
var permissions = []string{
	"+@read", "+@write", "+@connection", "+fcall", "+function|load", "+evalsha", "+eval", "+info", "+time", "+publish", "+subscribe", "+unsubscribe",
	"~{sema:*", "~sema:*", "&sema:*",
}

func TestStore_ConformsOverTLSAsAUser(t *testing.T) {
	t.Parallel()
	server, ca := redistest.TLS(t)
	server.Must(append([]string{"ACL", "SETUSER", "ann", "on", ">pa:ss@w%rd"}, permissions...)...)
	u := fmt.Sprintf("rediss://%s@%s/0?ca=%s", url.UserPassword("ann", "pa:ss@w%rd"), server.Address, url.QueryEscape(ca))
	fleettest.Suite{Histories: *histories / 4, TTL: 600 * time.Millisecond, Open: func(t *testing.T) fleet.Store {
		return openURL(t, u)
	}}.Run(t)
}

func openURL(t testing.TB, text string) *Store {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	o, err := parse(u)
	if err != nil {
		t.Fatal(err)
	}
	return openAt(t, o)
}
