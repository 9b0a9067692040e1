package flags

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/figure"
	"github.com/sema-go/sema/fleet/protocol"
)

// Permits holds the flags of commands that acquire permits. Use it only after [Permits.Check].
type Permits struct {
	Capacity, Weight int64
	Slots            int64         // 0: permits without numbers; else the weight
	Wait, TTL        time.Duration // Wait: negative means without limit
	noWait           bool
}

// Add adds the flags to a set.
func (p *Permits) Add(f *pflag.FlagSet) {
	f.Int64VarP(&p.Capacity, "capacity", "n", 0, "at most `N` permits are held at a time (default: as stored; 1 for a new semaphore)")
	f.Int64VarP(&p.Weight, "weight", "w", 1, "acquire `N` permits, all or none")
	f.Int64Var(&p.Slots, "slots", 0, "acquire `K` permits with numbers from 0 to N-1, which no other holder has (a new semaphore becomes numbered)")
	Duration(f, &p.Wait, "wait", Absent, "give up after `DURATION`, such as 30s or 5m (default: wait without limit)")
	f.BoolVar(&p.noWait, "no-wait", false, "give up at once if no permit is free")
	Duration(f, &p.TTL, "ttl", 0, "for a new semaphore of a store: a holder without a heartbeat for `DURATION` loses its permit (default 15s)")
}

// Check rejects invalid and contradicting flags of the set, after it was parsed.
func (p *Permits) Check(f *pflag.FlagSet) error {
	if f.Changed("slots") {
		if err := p.checkSlots(f); err != nil {
			return err
		}
	}
	switch {
	case f.Changed("capacity") && p.Capacity < 1:
		return exit.Misuse("-n %d: want 1 or more", p.Capacity)
	case p.Weight < 1:
		return exit.Misuse("--weight %d: want 1 or more", p.Weight)
	case f.Changed("wait") && p.noWait:
		return exit.Misuse("both --wait and --no-wait: want one of them")
	case f.Changed("ttl") && p.TTL <= 0:
		return exit.Misuse("--ttl %v: want more than 0, such as 15s", p.TTL)
	case p.Capacity > 0 && p.Weight > p.Capacity:
		return exit.Misuse("--weight %d is more than -n %d: it could never be granted", p.Weight, p.Capacity)
	}
	if p.noWait {
		p.Wait = 0
	}
	return nil
}

// checkSlots rejects invalid values of --slots, and sets the weight.
func (p *Permits) checkSlots(f *pflag.FlagSet) error {
	switch {
	case f.Changed("weight"):
		return exit.Misuse("both --slots and --weight: want one of them").With("--slots %d acquires %s", p.Slots, figure.Count(p.Slots, "numbered permit"))
	case p.Slots < 1 || p.Slots > maxSlots:
		return exit.Misuse("--slots %d: want 1 to %d", p.Slots, maxSlots)
	case p.Capacity > 0 && p.Slots > p.Capacity:
		return exit.Misuse("--slots %d is more than -n %d: it could never be granted", p.Slots, p.Capacity)
	}
	p.Weight = p.Slots
	return nil
}

// maxSlots bounds the length of SEMA_SLOTS. It is the highest numbered capacity of a store.
const maxSlots = protocol.MaxNumbered
