package meter_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/server/internal/meter"
)

// ownerOf returns the part of a name before the slash.
func ownerOf(name string) string { return strings.Split(name, "/")[0] }

// TestMeter_SharesTheLimitAmongOwners checks that an owner with many semaphores in use leaves the
// others an equal share, and that no acquire is counted twice or lost.
func TestMeter_SharesTheLimitAmongOwners(t *testing.T) {
	t.Parallel()
	const limit = 10
	m := meter.New(limit, none, ownerOf)
	acquired := 0
	all := map[string]*client{}
	use := func(name string) {
		c := all[name]
		if c == nil {
			c = at(t, m, name, 1)
			all[name] = c
		}
		acquired++
		c.send(protocol.Applied, []protocol.Result{granted(acquired, acquired)}, acquire(acquired))
	}
	series := func() (of map[string]int) {
		of = map[string]int{}
		everything, _ := m.All()
		for _, s := range everything {
			of[ownerOf(s.Name)]++
		}
		return of
	}
	for i := range 50 {
		use(fmt.Sprint("greedy/", i))
	}
	if n := series()["greedy"]; n != limit {
		t.Errorf("%d series without others, want %d", n, limit)
	}
	for i := range 3 {
		use(fmt.Sprint("small/", i))
	}
	if of := series(); of["small"] != 3 || of["greedy"] != 7 {
		t.Errorf("series %v", of)
	}
	if owner, n := m.Most(); owner != "greedy" || n != 7 {
		t.Errorf("most: %s, %d", owner, n)
	}
	for round := range 3 {
		for i := range 20 {
			use(fmt.Sprint("other/", i))
			use(fmt.Sprint("greedy/", 50+20*round+i))
		}
	}
	if of := series(); of["small"] != 3 || of["greedy"]+of["other"] != 7 || of["other"] < 3 || of["greedy"] < 3 {
		t.Errorf("series %v", of)
	}
	states := map[string]meter.State{}
	for i := range 40 {
		states[fmt.Sprint("idle/", i)] = meter.State{Capacity: 1}
	}
	m.Observe(states, *all["small/0"].now)
	if of := series(); of["idle"] != 2 || of["small"] < 2 {
		t.Errorf("series %v after a list with names that are not used", of)
	}
	for name := range all {
		use(name) // also those whose series is another one now
	}
	var total uint64
	everything, _ := m.All()
	for _, s := range everything {
		total += s.Total(meter.Acquired)
	}
	if total > uint64(acquired) { // series that were replaced are gone
		t.Errorf("%d acquires counted of %d", total, acquired)
	}
	before := m.Folded().Total(meter.Acquired)
	use("greedy/0")
	if n := m.Folded().Total(meter.Acquired) - before; m.Series("greedy/0") == nil && n != 1 {
		t.Errorf("%d folded, want 1: the acquire counts for a series that was dropped", n)
	}
}

// gathered returns the values of a semaphore, by metric and labels.
func gathered(t *testing.T, m *meter.Meter, fresh bool) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(meter.NewCollector("test").Of(m, "", fresh))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, one := range f.GetMetric() {
			values[f.GetName()+labelsOf(one)] = one.GetGauge().GetValue() + one.GetCounter().GetValue()
		}
	}
	return values
}

func labelsOf(m *dto.Metric) (text string) {
	for _, l := range m.GetLabel() {
		if l.GetName() != "backend" && l.GetValue() != "db" {
			text += " " + l.GetValue()
		}
	}
	return text
}

// TestCollector_Waits checks how many acquires were queued and for how long. Acquires that are
// granted or rejected at once are not among them.
func TestCollector_Waits(t *testing.T) {
	t.Parallel()
	m := meter.New(10, none, oneOwner)
	c := at(t, m, "db", 1)
	began := time.Now()
	*c.now = began.Add(-time.Minute)
	c.send(protocol.Applied, []protocol.Result{granted(1, 7), {Kind: protocol.Full, Ticket: 2}}, acquire(1), acquire(2))
	c.send(protocol.Applied, nil, acquire(3), acquire(4), acquire(5))
	c.pass(10 * time.Second)
	c.send(protocol.Applied, []protocol.Result{granted(3, 8), {Kind: protocol.TimedOut, Ticket: 4}})
	v := gathered(t, m, true)
	elapsed := time.Since(began).Seconds()
	if v["sema_waits_total"] != 3 {
		t.Errorf("%v waits, want 3", v["sema_waits_total"])
	}
	if sum := v["sema_wait_seconds_total"]; sum < 20+60 || sum > 20+60+elapsed {
		t.Errorf("waited %v s, want 10, 10 and 60", sum)
	}
	*c.now = began
	c.send(protocol.Applied, nil, protocol.Op{Verb: protocol.Cancel, Ticket: 5})
	if v := gathered(t, m, true); v["sema_wait_seconds_total"] != 80 {
		t.Errorf("waited %v s, want 80", v["sema_wait_seconds_total"])
	}
}

// TestCollector_Gauges checks the debt after a shrink, a declared semaphore that the store does not
// have yet, and that gauges are absent while the store cannot be listed.
func TestCollector_Gauges(t *testing.T) {
	t.Parallel()
	m := meter.New(10, func(name string) bool { return name == "declared" }, oneOwner)
	now := time.Now()
	m.Declare("declared", meter.State{Capacity: 5, Effective: 5}, now)
	m.Observe(map[string]meter.State{"db": {Capacity: 2, Effective: 2, InUse: 6}}, now)
	v := gathered(t, m, true)
	for name, want := range map[string]float64{
		"sema_permits_debt": 4, "sema_permits_capacity": 2, "sema_permits_capacity declared": 5, "sema_permits_debt declared": 0,
	} {
		if got, ok := v[name]; !ok || got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	v = gathered(t, m, false)
	for name := range v {
		if strings.HasPrefix(name, "sema_permits") || strings.HasPrefix(name, "sema_waiters") || strings.Contains(name, "_age_") || strings.Contains(name, "oldest") {
			t.Errorf("%s while the store cannot be listed", name)
		}
	}
	if _, ok := v["sema_acquires_total acquired"]; !ok {
		t.Errorf("no counters: %v", v)
	}
}

// TestSeries_RejectedArrivals checks that acquires which are rejected at once are known apart.
func TestSeries_RejectedArrivals(t *testing.T) {
	t.Parallel()
	c := at(t, meter.New(10, none, oneOwner), "db", 1)
	for i := range 100 {
		c.send(protocol.Applied, []protocol.Result{{Kind: protocol.Full, Ticket: protocol.Ticket(i)}}, acquire(i))
	}
	c.send(protocol.Applied, []protocol.Result{granted(1000, 7)}, acquire(1000))
	c.pass(10 * time.Second)
	f := c.meter.Series("db").Figures(*c.now)
	if got := (f.Arrivals - f.Rejected) * f.Period.Seconds(); got < 0.99 || got > 1.01 || f.Rejected < 9.9 {
		t.Errorf("%v arrivals besides those rejected: %+v", got, f)
	}
}

// TestSeries_Samples checks that each grant is in one sample.
func TestSeries_Samples(t *testing.T) {
	t.Parallel()
	c := at(t, meter.New(10, none, oneOwner), "db", 1)
	grants := 0
	grant := func() {
		grants++
		c.send(protocol.Applied, []protocol.Result{granted(grants, grants)}, acquire(grants))
	}
	grant()
	s := c.meter.Series("db")
	if n := s.Sampled().Grants; n != 1 {
		t.Errorf("%d grants", n)
	}
	grant()
	if n := s.Pointed().Grants; n != 1 {
		t.Errorf("%d grants since the regular sample", n)
	}
	grant()
	if n := s.Pointed().Grants; n != 1 {
		t.Errorf("%d grants since the sample of a second", n)
	}
	if n := s.Sampled().Grants; n != 2 {
		t.Errorf("%d grants since the regular sample", n)
	}
	if n := s.Pointed().Grants; n != 0 {
		t.Errorf("%d grants since the regular sample", n)
	}
}
