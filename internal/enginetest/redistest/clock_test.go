package redistest

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/internal/enginetest"
)

func TestAServerGoesByItsClock(t *testing.T) {
	t.Parallel()
	clock := enginetest.NewClock(t)
	s := Start(clock.For(t))
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		clock.Set(ahead)
		seconds, _, _ := strings.Cut(s.Must("TIME"), "\n")
		now, err := strconv.ParseInt(seconds, 10, 64)
		if off := time.Until(time.Unix(now, 0)) - ahead; err != nil || off.Abs() > time.Minute {
			t.Errorf("set to %v, it is off by %v: %v", ahead, off, err)
		}
	}
}
