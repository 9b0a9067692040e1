package wfq

import (
	"fmt"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/seal"
)

// An Option configures [New] and [Over]: [Aging], [Ceiling], or a [sema.SharedOption] such
// as [sema.Name], [sema.MaxWait], [sema.MaxWaiters] and [sema.Observe]. New panics on options
// of other packages.
type Option interface{ SharedOption(seal.Key) }

// An aging is the option Aging, a ceiling the option Ceiling.
type (
	aging   time.Duration
	ceiling int
)

// SharedOption implements [Option].
func (aging) SharedOption(seal.Key) {}

// SharedOption implements [Option].
func (ceiling) SharedOption(seal.Key) {}

// Aging raises a tier by one for each d that a waiter which is next in its class has
// waited, so that lower tiers are served at last. Default: tiers do not change. It panics unless d is
// positive.
func Aging(d time.Duration) Option {
	if d <= 0 {
		panic(fmt.Sprintf("wfq: Aging(%v): want a positive duration", d))
	}
	return aging(d)
}

// Ceiling raises holders of the queue's permits to at least this tier while they wait at
// another queue. It is the static form of priority inheritance: it applies
// whether others wait here or not. See [Class.Acquire].
func Ceiling(tier int) Option { return ceiling(tier) }

// settings are what the options of a queue set.
type settings struct {
	sema.Settings
	shared  []sema.SharedOption
	aging   int64 // ns; 0: off
	ceiling *int  // nil: none
}

func newSettings(opts []Option) (s settings) {
	for _, opt := range opts {
		switch o := opt.(type) {
		case aging:
			s.aging = int64(o)
		case ceiling:
			tier := int(o)
			s.ceiling = &tier
		case sema.SharedOption:
			s.shared = append(s.shared, o)
		default:
			panic(fmt.Sprintf("wfq: New: %T is not an option of package wfq (hint: use those of package wfq and those that are a sema.SharedOption)", opt))
		}
	}
	s.Settings = sema.SettingsOf(s.shared...)
	return s
}
