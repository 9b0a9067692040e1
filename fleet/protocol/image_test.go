package protocol_test

import (
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
)

func TestImagesThatCannotBeAreNotRestored(t *testing.T) {
	t.Parallel()
	e := newEngine(t, protocol.Config{Capacity: 2})
	id := e.open()
	e.say(id, acquire(1, 1), acquire(2, 1), acquire(3, 1))
	good := e.state.Image()
	if _, err := protocol.Restore(good); err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func(*protocol.Image){
		"no TTL":                    func(im *protocol.Image) { im.Config.TTL = 0 },
		"a lease of nobody":         func(im *protocol.Image) { im.Leases[0].Session = 99 },
		"a ticket of nobody":        func(im *protocol.Image) { im.Queue[0].Session = 99 },
		"leases out of order":       func(im *protocol.Image) { im.Leases[0].Seq = im.Leases[1].Seq + 1 },
		"a lease twice":             func(im *protocol.Image) { im.Leases[1] = im.Leases[0] },
		"a lease of nothing":        func(im *protocol.Image) { im.Leases[0].Weight = 0 },
		"a lease from the future":   func(im *protocol.Image) { im.LastSeq = im.Leases[0].Seq },
		"a ticket that is hopeless": func(im *protocol.Image) { im.Queue[0].Weight, im.Queue[0].Least = 9, 9 },
		"a ticket for nothing":      func(im *protocol.Image) { im.Queue[0].Least = 0 },
		"results out of order":      func(im *protocol.Image) { im.Sessions[0].LastResult = 0 },
		"a session from nowhere":    func(im *protocol.Image) { im.LastSession = 0 },
	} {
		spoilt := e.state.Image()
		spoil(&spoilt)
		if _, err := protocol.Restore(spoilt); err == nil {
			t.Errorf("%s: restored", what)
		}
	}
}
