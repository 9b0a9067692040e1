package protocol_test

import (
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
)

func TestRestore_RejectsInvalidImages(t *testing.T) {
	t.Parallel()
	e := newTestStore(t, protocol.Config{Capacity: 2})
	id := e.open()
	e.send(id, acquire(1, 1), acquire(2, 1), acquire(3, 1))
	good := e.state.Image()
	if _, err := protocol.Restore(good); err != nil {
		t.Fatal(err)
	}
	for what, corrupt := range map[string]func(*protocol.Image){
		"no TTL":                      func(im *protocol.Image) { im.Config.TTL = 0 },
		"a lease without session":     func(im *protocol.Image) { im.Leases[0].Session = 99 },
		"a ticket without session":    func(im *protocol.Image) { im.Queue[0].Session = 99 },
		"leases out of order":         func(im *protocol.Image) { im.Leases[0].Seq = im.Leases[1].Seq + 1 },
		"a lease twice":               func(im *protocol.Image) { im.Leases[1] = im.Leases[0] },
		"a lease of weight 0":         func(im *protocol.Image) { im.Leases[0].Weight = 0 },
		"a lease above LastSeq":       func(im *protocol.Image) { im.LastSeq = im.Leases[0].Seq },
		"a ticket that is too large":  func(im *protocol.Image) { im.Queue[0].Weight, im.Queue[0].Least = 9, 9 },
		"a ticket of least weight 0":  func(im *protocol.Image) { im.Queue[0].Least = 0 },
		"results out of order":        func(im *protocol.Image) { im.Sessions[0].LastResult = 0 },
		"a session above LastSession": func(im *protocol.Image) { im.LastSession = 0 },
	} {
		corrupted := e.state.Image()
		corrupt(&corrupted)
		if _, err := protocol.Restore(corrupted); err == nil {
			t.Errorf("%s: restored", what)
		}
	}
}
