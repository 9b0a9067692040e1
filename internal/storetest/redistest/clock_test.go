package redistest

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/internal/storetest"
)

func TestServer_FollowsItsClock(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock(t)
	s := Start(clock.For(t))
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		clock.Set(ahead)
		seconds, _, _ := strings.Cut(s.Must("TIME"), "\n")
		now, err := strconv.ParseInt(seconds, 10, 64)
		if off := time.Until(time.Unix(now, 0)) - ahead; err != nil || off.Abs() > time.Minute {
			t.Errorf("with offset %v the server's time is off by %v: %v", ahead, off, err)
		}
	}
}
