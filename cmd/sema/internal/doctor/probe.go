package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/figure"
	"github.com/sema-go/sema/cmd/sema/internal/store"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// A probe examines a store that was reached.
type probe struct {
	client   *fleet.Client
	report   *report
	settings settings
}

// A sample is one round trip.
type sample struct {
	took  time.Duration
	ahead time.Duration // how far the store's clock is ahead, plus or minus half of took; 0 if it has no clock
}

// pause is the time between pings, so that they are not sent as one burst.
const pause = 20 * time.Millisecond

// roundTrips measures the latency of the store, and compares its clock.
func (p *probe) roundTrips(ctx context.Context) {
	var all []sample
	clock, asked := true, true
	for range p.settings.pings {
		start := time.Now()
		there, err := p.client.Ping(ctx)
		s := sample{took: time.Since(start)}
		if errors.Is(err, errors.ErrUnsupported) {
			asked = false
			_, err = p.client.Info(ctx, store.ScratchName("doctor"))
			s.took = time.Since(start)
		}
		if err != nil && !isAbsent(err) {
			p.report.add(fleet.Finding{Check: "latency", Level: fleet.LevelProblem, Seen: fmt.Sprintf("no reply after %s: %v", figure.Count(int64(len(all)), "round trip"), err), Advice: "check the server, and the network on the way"})
			return
		}
		if clock = clock && !there.IsZero(); clock {
			s.ahead = there.Sub(start.Add(s.took / 2))
		}
		all = append(all, s)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	p.report.add(judgeLatency(all, p.settings.ttl))
	switch {
	case clock:
		p.report.add(judgeClock(all))
	case !asked:
		p.report.add(fleet.Finding{Check: "clock", Level: fleet.LevelOK, Seen: "the clock and the settings of the store cannot be read through this server; run 'sema doctor' on the store behind it, too"})
	default:
		p.report.add(fleet.Finding{Check: "clock", Level: fleet.LevelOK, Seen: "the store does not use a clock; each client measures the time itself"})
	}
}

// judgeLatency compares the latency with the heartbeats of holders: they send one every third
// of a TTL, and lose their permits after two thirds without a reply.
func judgeLatency(all []sample, ttl time.Duration) fleet.Finding {
	took := make([]time.Duration, len(all))
	for i, s := range all {
		took[i] = s.took
	}
	slices.Sort(took)
	p50, p99 := took[len(took)/2], took[len(took)*99/100]
	f := fleet.Finding{Check: "latency", Level: fleet.LevelOK, Seen: fmt.Sprintf("p50 %v, p99 %v of %d round trips; TTL %v", figure.Short(p50), figure.Short(p99), len(all), ttl)}
	const far = 20 * time.Millisecond
	switch {
	case p99 > ttl/3:
		f.Level, f.Advice = fleet.LevelProblem, fmt.Sprintf("holders send a heartbeat every %v, and lose their permits without it; raise the TTL, or find what is slow", ttl/3)
	case p99 > ttl/15:
		f.Level, f.Advice = fleet.LevelWarning, fmt.Sprintf("holders send a heartbeat every %v, with little time to spare; raise the TTL, or find what is slow", ttl/3)
	case p50 > far:
		f.Level, f.Advice = fleet.LevelWarning, "every acquire takes a round trip; use a store nearby, fleet.ModePooled, or regions"
	}
	return f
}

// judgeClock reports how far the store's clock is off, and whether it stepped during the
// examination. Neither affects permits, but both distort the times that are shown.
func judgeClock(all []sample) fleet.Finding {
	const much, tolerance = time.Second, 20 * time.Millisecond
	ahead := make([]time.Duration, len(all))
	var step time.Duration
	for i, s := range all {
		ahead[i] = s.ahead
		if i > 0 {
			moved := s.ahead - all[i-1].ahead
			// The whole duration of a round trip may have been one way.
			if moved.Abs() > (s.took+all[i-1].took)/2+tolerance && moved.Abs() > step.Abs() {
				step = moved
			}
		}
	}
	slices.Sort(ahead)
	median := ahead[len(ahead)/2]
	f := fleet.Finding{Check: "clock", Level: fleet.LevelOK, Seen: fmt.Sprintf("within %v of this machine's, and steady", figure.Short(max(median.Abs(), time.Millisecond)))}
	direction := func(d time.Duration) string {
		if d < 0 {
			return fmt.Sprintf("%v behind", figure.Short(-d))
		}
		return fmt.Sprintf("%v ahead", figure.Short(d))
	}
	switch {
	case step != 0:
		f.Level, f.Seen = fleet.LevelWarning, fmt.Sprintf("it stepped by %v during the examination", figure.Short(step))
		f.Advice = "no permit is lost, but expired holders are noticed later and rates are off; slew the clock (chrony, ntpd) instead"
	case median.Abs() > much:
		f.Level, f.Seen = fleet.LevelWarning, fmt.Sprintf("%s of this machine's", direction(median))
		f.Advice = "permits are safe, but displayed times are off; synchronise both clocks (chrony, ntpd)"
	}
	return f
}

// mostRead bounds the number of semaphores that are read.
const mostRead = 200

// stored checks which protocol version the semaphores were written with.
func (p *probe) stored(ctx context.Context) {
	names, err := p.client.List(ctx, "")
	if err != nil {
		p.report.add(fleet.Finding{Check: "stored", Level: fleet.LevelWarning, Seen: fmt.Sprintf("cannot be listed: %v", err), Advice: cmp.Or(tokenAdvice(err), "allow the user to read the semaphores")})
		return
	}
	strange, unusable := []string{}, []string{}
	advice := "use the program that created them; only adjacent protocol versions are compatible"
	for _, name := range names[:min(len(names), mostRead)] {
		info, err := p.client.Info(ctx, name)
		switch made := int64(info.Config.Protocol); {
		case isAbsent(err) || err == nil && (made == protocol.Version || made == 0):
		case err != nil:
			unusable = append(unusable, fmt.Sprintf("%s (%v)", name, err))
			if c, known := causeOf(err); known {
				advice = c.advice
			}
		case made > protocol.Version+1 || made < protocol.Version-1:
			unusable = append(unusable, fmt.Sprintf("%s (protocol %d)", name, made))
		default:
			strange = append(strange, fmt.Sprintf("%s (protocol %d)", name, made))
		}
	}
	f := fleet.Finding{Check: "stored", Level: fleet.LevelOK, Seen: fmt.Sprintf("%s, protocol %d", figure.Count(int64(len(names)), "semaphore"), protocol.Version)}
	switch {
	case len(unusable) > 0:
		f.Level, f.Seen = fleet.LevelProblem, fmt.Sprintf("%s, of which this program (protocol %d) cannot use %s", figure.Count(int64(len(names)), "semaphore"), protocol.Version, some(unusable))
		f.Advice = advice
	case len(strange) > 0:
		f.Level, f.Seen = fleet.LevelWarning, fmt.Sprintf("%s, of which a newer or older program created %s; this one (protocol %d) can use them", figure.Count(int64(len(names)), "semaphore"), some(strange), protocol.Version)
		f.Advice = "finish the upgrade of all programs"
	}
	p.report.add(f)
}

// some lists at most three names, and the number of the others.
func some(names []string) string {
	const most = 3
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// useTTL is short, because a server that was just started grants nothing for a TTL.
const useTTL, useTimeout = 2 * time.Second, 4 * time.Second

// use performs the operations of programs and operators in a scratch semaphore, which it removes.
func (p *probe) use(ctx context.Context) {
	name := store.ScratchName("doctor")
	s, err := p.client.Semaphore(name, 1, fleet.TTL(useTTL), sema.MaxWait(useTimeout))
	if err != nil {
		p.report.add(fleet.Finding{Check: "use", Level: fleet.LevelProblem, Seen: err.Error(), Advice: "unexpected; please report it"})
		return
	}
	var permit sema.Permit
	var did []string
	steps := []struct {
		name string
		do   func() error
	}{
		{"acquire", func() (err error) { permit, err = s.Acquire(ctx, 1); return err }},
		{"inspect", func() error { _, err := p.client.Info(ctx, name); return err }},
		{"configure", func() error {
			return p.client.Resize(ctx, name, 2)
		}},
		{"release", func() error { return fleet.Release(ctx, permit) }},
		{"delete", func() error { return p.client.Delete(context.WithoutCancel(ctx), name) }},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			p.report.add(useFinding(step.name, err))
			permit.Release()
			// An acquire that was not granted has created the semaphore, too.
			removing, cancel := context.WithTimeout(context.WithoutCancel(ctx), useTimeout)
			defer cancel()
			p.client.Delete(removing, name)
			return
		}
		did = append(did, step.name)
	}
	p.report.add(fleet.Finding{Check: "use", Level: fleet.LevelOK, Seen: strings.Join(did, ", ") + " work in a scratch semaphore, which was removed"})
}

func isAbsent(err error) bool { return errors.Is(err, fs.ErrNotExist) }
