package overload

import (
	"fmt"
	"time"
)

// A Scenario is a load, and the implementations that it is offered to.
type Scenario struct {
	Name, About string
	Load        Load
	Of          []Implementation
	Recoveries  []recovery
	bars        func(r results) []Bar
}

// Times of the scenarios that change the load.
const (
	changeFrom = 3 * time.Second
	changeTo   = 6 * time.Second
	changeEnd  = 12 * time.Second
)

// loads are the loads of the steady scenarios.
var loads = []float64{0.5, 0.9, 1.2, 2, 5}

func steady(load float64) string { return fmt.Sprintf("load-%v", load) }

// Scenarios returns all scenarios.
func Scenarios() (all []Scenario) {
	for _, load := range loads {
		all = append(all, Scenario{
			Name: steady(load), About: fmt.Sprintf("%v times as much as the slots can serve, for 10 s", load),
			Load: Load{For: 10 * time.Second, Phases: []Phase{{0, load}}}, Of: fixed(), bars: steadyBars(load),
		})
	}
	for _, load := range []float64{2, 5} {
		all = append(all, Scenario{
			Name: fmt.Sprintf("unknown-%v", load), About: fmt.Sprintf("%v times as much as the slots can serve, for 30 s; no library is given the number of slots", load),
			Load: Load{For: 30 * time.Second, Phases: []Phase{{0, load}}}, Of: adapting(),
		})
	}
	return append(all,
		Scenario{
			Name: "step", About: "half of what the slots can serve, from 3 s to 6 s ten times that",
			Load: Load{For: changeEnd, Phases: []Phase{{0, 0.5}, {changeFrom, 5}, {changeTo, 0.5}}}, Of: fixed(),
			bars: recoveryBars, Recoveries: stepRecoveries,
		},
		Scenario{
			Name: "slowdown", About: "0.9 of what the slots can serve, from 3 s to 6 s each request takes four times as long",
			Load: Load{For: changeEnd, Phases: []Phase{{0, 0.9}}, Slow: Span{changeFrom, changeTo}, SlowBy: 4}, Of: fixed(),
			bars: recoveryBars, Recoveries: slowdownRecoveries,
		},
		Scenario{
			Name: "hog", About: "one tenant offers 5 times what the slots can serve, nine 0.15 times each",
			Load: Load{For: 10 * time.Second, Classes: hogAndTenants(0.15)}, Of: fixed(), bars: fairnessBars,
		},
		Scenario{
			Name: "weights", About: "three classes of weights 1:2:4 offer 2 times what the slots can serve each",
			Load: Load{For: 10 * time.Second, Classes: []Class{{"a", 1, 2}, {"b", 2, 2}, {"c", 4, 2}}}, Of: fixed(), bars: fairnessBars,
		},
		Scenario{
			Name: "wide", About: fmt.Sprintf("2 times what the slots can serve, one request of 20 needs %d of %d slots", WideCost, Slots),
			Load: Load{For: 10 * time.Second, Phases: []Phase{{0, 2}}, Wide: 0.05}, Of: fixed(), bars: wideBars,
		},
		Scenario{
			Name: "storm", About: "2 times what the slots can serve, half of the clients leave early, and all at once every 500 ms",
			Load: Load{For: 10 * time.Second, Phases: []Phase{{0, 2}}, Cancel: 0.5, Storm: 500 * time.Millisecond}, Of: fixed(),
		},
	)
}

func hogAndTenants(load float64) []Class {
	all := []Class{{"hog", 1, 5}}
	for i := range 9 {
		all = append(all, Class{fmt.Sprint("tenant ", i+1), 1, load})
	}
	return all
}
