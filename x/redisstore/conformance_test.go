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
	"github.com/sema-go/sema/internal/enginetest/redistest"
)

// A clocked store has a server whose clock, as the program sees it, is in a key.
type clocked struct {
	*Store
	key string
}

func openClocked(t *testing.T, url string) *clocked {
	s := &clocked{openURL(t, url), fmt.Sprintf("clock-%x", rand.Uint64())}
	edit := strings.NewReplacer(
		"local time = call('TIME')", "local set = call('GET', '"+s.key+"')\nlocal time = set and { 0, set } or call('TIME')",
		// Keys do not expire by this clock, whatever gaps it has, and other stores of the
		// server have other clocks.
		"local LONG = WEEK / 2", "local LONG = NEVER", ":used'", ":used-"+s.key+"'")
	s.program = assemble(edit.Replace)
	return s
}

// SetClock is for [fleettest.Clocked].
func (c *clocked) SetClock(at time.Time) {
	client := c.servers[0].now()
	command := client.B().Set().Key(c.key).Value(fmt.Sprint(at.UnixMicro())).Build()
	if at.IsZero() {
		command = client.B().Del().Key(c.key).Build()
	}
	if err := client.Do(ctx, command).Error(); err != nil {
		panic(err)
	}
}

func TestConforms(t *testing.T) {
	t.Parallel()
	url := redistest.Shared.URL(t)
	fleettest.Suite{Histories: *histories, Open: func(t *testing.T) fleet.Store { return openClocked(t, url) }}.Run(t)
}

func TestConformsByTheRealClock(t *testing.T) {
	t.Parallel()
	url := redistest.Shared.URL(t)
	fleettest.Suite{Histories: *histories, TTL: 600 * time.Millisecond, Open: func(t *testing.T) fleet.Store { return openURL(t, url) }}.Run(t)
}

// A server before version 7, or one that lets nobody load functions, runs the
// same text as a script.
func TestConformsAsAScript(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--rename-command", "FUNCTION", "")
	fleettest.Suite{Histories: *histories / 4, TTL: 600 * time.Millisecond, Open: func(t *testing.T) fleet.Store {
		s := openClocked(t, server.URL())
		t.Cleanup(func() {
			if !s.servers[0].scripted.Load() {
				t.Error("it was no script")
			}
		})
		return s
	}}.Run(t)
}

func TestConformsInACluster(t *testing.T) {
	t.Parallel()
	nodes := redistest.Cluster(t, 3)
	fleettest.Suite{Histories: *histories / 4, TTL: 600 * time.Millisecond, Open: func(t *testing.T) fleet.Store {
		return openAt(t, Options{Addresses: []string{nodes[1].Address}, Cluster: true})
	}}.Run(t)
}

func TestConformsOnShards(t *testing.T) {
	t.Parallel()
	a, b, c := redistest.Start(t), redistest.Start(t), redistest.Start(t)
	t.Run("suite", func(t *testing.T) {
		fleettest.Suite{Histories: *histories / 4, TTL: 600 * time.Millisecond, Open: func(t *testing.T) fleet.Store {
			return openAt(t, Options{Addresses: []string{a.Address, b.Address, c.Address}, Sharded: true})
		}}.Run(t)
	})
	for _, server := range []*redistest.Server{a, b, c} {
		if n := server.Must("DBSIZE"); n == "0" {
			t.Error("there was nothing on one of three servers")
		}
	}
}

// What a user has to be allowed, as the package's documentation says.
var permissions = []string{
	"+@read", "+@write", "+@connection", "+fcall", "+function|load", "+evalsha", "+eval", "+info", "+time", "+publish", "+subscribe", "+unsubscribe",
	"~{sema:*", "~sema:*", "&sema:*",
}

func TestConformsOverTLSAsAUser(t *testing.T) {
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
