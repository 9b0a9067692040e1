// Package overload offers a service more requests than it can serve, and measures what
// admission control makes of them: Sema's and that of other libraries.
//
// The service has a number of slots and log-normal service times. Requests arrive in an open
// loop: at random, whatever happens to those before them. Arrivals, service times, classes
// and cancellations come from a seeded trace, which is the same for all implementations.
// Everything runs in virtual time (testing/synctest), so the policy is measured and not the
// machine.
//
// Waiting requests of the service itself are served in order of arrival. So an
// implementation that admits more than the slots can serve makes requests wait inside.
package overload

import "time"

// What all implementations know.
const (
	Slots       = 16                     // requests that the service processes at once
	WaitBudget  = 100 * time.Millisecond // how long a request may wait for its admission
	Deadline    = 200 * time.Millisecond // after which the response is worthless
	ServiceMean = 10 * time.Millisecond  // log-normal, sigma 0.5
	sigma       = 0.5
)
