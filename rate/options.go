package rate

import (
	"fmt"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/internal/seal"
)

// An Option configures [New]: [Burst], or a [sema.SharedOption] such as [sema.Name],
// [sema.MaxWait], [sema.MaxWaiters] and [sema.Observe]. New panics on options of other
// packages.
type Option interface{ SharedOption(seal.Key) }

// burst is the option Burst.
type burst int64

// SharedOption implements [Option].
func (burst) SharedOption(seal.Key) {}

// Burst sets how many permits can be acquired at once after a pause; default n. Burst(1)
// paces: each permit comes one interval after the one before. It panics unless b is
// positive.
func Burst(b int64) Option {
	if b < 1 || b > sema.MaxCapacity {
		panic(fmt.Sprintf("rate: Burst(%d): want 1 to %d", b, sema.MaxCapacity))
	}
	return burst(b)
}

// settings are what the options of a gate set.
type settings struct {
	sema.Settings
	shared []sema.SharedOption
	burst  int64 // 0: as many as return in a period
}

func newSettings(opts []Option) (s settings) {
	for _, opt := range opts {
		switch o := opt.(type) {
		case burst:
			s.burst = int64(o)
		case sema.SharedOption:
			s.shared = append(s.shared, o)
		default:
			panic(fmt.Sprintf("rate: New: %T is not an option of package rate (hint: use rate.Burst and those that are a sema.SharedOption)", opt))
		}
	}
	s.Settings = sema.SettingsOf(s.shared...)
	return s
}
