package dashboard

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sema-go/sema/x/server/internal/history"
)

// A sparkline shows the permits in use in the last minutes.
const (
	sparkSpan   = 10 * time.Minute
	sparkBins   = 60
	sparkHeight = 16
)

// sparks caches sparklines until the history has new samples.
type sparks struct {
	mu   sync.Mutex
	tick int64
	all  map[string]string
}

// of returns the path of a sparkline; "": the semaphore was not used.
func (s *sparks) of(m Measures, name string, measured bool, now time.Time) string {
	if !measured {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if tick := now.UnixNano() / int64(history.Fine); tick != s.tick || s.all == nil {
		s.tick, s.all = tick, map[string]string{}
	}
	path, known := s.all[name]
	if !known {
		curve, _ := m.Past(name, sparkSpan)
		path = sparkline(curve, now)
		s.all[name] = path
	}
	return path
}

// sparkline returns the path of a curve in a space of sparkBins by sparkHeight.
func sparkline(curve history.Curve, now time.Time) string {
	const width = sparkSpan / sparkBins
	begin := now.Truncate(width).Add(width - sparkSpan)
	bins := make([]int64, sparkBins)
	first, top, peak := sparkBins, int64(1), int64(0)
	for _, p := range curve.Points {
		i := int(p.At.Sub(begin) / width)
		if p.At.Before(begin) || i >= sparkBins {
			continue
		}
		first = min(first, i)
		bins[i] = max(bins[i], p.InUse)
		peak, top = max(peak, p.InUse), max(top, p.InUse, p.Effective)
	}
	if peak == 0 {
		return ""
	}
	var line strings.Builder
	y := func(v int64) int64 { return sparkHeight - v*sparkHeight/top }
	for i := first; i < sparkBins; i++ {
		switch {
		case i == first:
			fmt.Fprintf(&line, "M%d %dV%d", i, sparkHeight, y(bins[i]))
		case y(bins[i]) != y(bins[i-1]):
			fmt.Fprintf(&line, "H%dV%d", i, y(bins[i]))
		}
	}
	fmt.Fprintf(&line, "H%dV%dZ", sparkBins, sparkHeight)
	return line.String()
}
