package admit

import (
	"github.com/sema-go/sema"
	"github.com/sema-go/sema/wfq"
)

// A Result is how an admitted request has ended.
type Result uint8

const (
	// OK: the request succeeded. Its duration counts.
	OK Result = iota
	// Failed: the request failed. The breaker counts it.
	Failed
	// Dropped: a dependency was overloaded: it timed out, or it rejected the request. The
	// breaker counts it as a failure, and the limit is lowered.
	Dropped
	// Ignored: the result is no evidence about the dependency; for example, the client went
	// away. Neither breaker nor limit count it.
	Ignored
)

// String returns the name of the result.
func (o Result) String() string {
	return word(int(o), "ok", "failed", "dropped", "ignored")
}

// A Reason is why a request was rejected.
type Reason uint8

const (
	ReasonShedding    Reason = iota + 1 // the operator has switched shedding on
	ReasonDraining                      // the controller is shutting down
	ReasonDeadline                      // the wait would have outlasted the deadline or the wait budget
	ReasonBreaker                       // the breaker is open
	ReasonRate                          // the rate of all requests
	ReasonClassRate                     // the rate of the class
	ReasonBudget                        // the budget for costs
	ReasonFull                          // a request that does not wait found too few permits free
	ReasonQueueFull                     // as many requests wait as may
	ReasonTimeout                       // the request has waited as long as it may
	ReasonOverloaded                    // shed by the order wfq.CoDel
	ReasonUnavailable                   // a store behind a gate does not reply
	reasons
)

// Reasons returns all reasons, for metrics that start at 0.
func Reasons() []Reason {
	all := make([]Reason, 0, reasons-1)
	for r := ReasonShedding; r < reasons; r++ {
		all = append(all, r)
	}
	return all
}

// String returns a short stable word, for metrics and the header X-Shed-Reason.
func (r Reason) String() string {
	return word(int(r)-1, "shedding", "draining", "deadline", "breaker", "rate", "class-rate", "budget", "full", "queue-full", "timeout", "overloaded", "unavailable")
}

func word(i int, words ...string) string {
	if i < 0 || i >= len(words) {
		return "unknown"
	}
	return words[i]
}

// A fact is what a Rejection wraps: the sentinel that callers branch on, with the reason and
// the advice.
type fact struct {
	reason   Reason
	sentinel error
	text     string
	hint     string
}

// Error returns why the request was rejected.
func (f *fact) Error() string { return f.text }

// Unwrap returns the sentinel.
func (f *fact) Unwrap() error { return f.sentinel }

// Reason returns the result of [sema.Reason].
func (f *fact) Reason() string { return f.reason.String() }

// Hint returns the result of [sema.Hint].
func (f *fact) Hint() string { return f.hint }

// facts are the facts of each reason.
var facts = [reasons]*fact{
	ReasonShedding:    {ReasonShedding, sema.ErrFull, "shedding is switched on", "switch it off when the load has gone"},
	ReasonDraining:    {ReasonDraining, sema.ErrDraining, "shutting down", "use another instance"},
	ReasonDeadline:    {ReasonDeadline, sema.ErrTimeout, "the expected wait exceeds what the request may wait", "retry later, or raise the limit"},
	ReasonBreaker:     {ReasonBreaker, sema.ErrUnavailable, "the breaker is open", "look at the dependency: its calls fail or are slow"},
	ReasonRate:        {ReasonRate, sema.ErrFull, "over the rate", "send fewer requests, or raise the rate"},
	ReasonClassRate:   {ReasonClassRate, sema.ErrFull, "over the rate of the class", "send fewer requests, or raise the rate of the class"},
	ReasonBudget:      {ReasonBudget, sema.ErrFull, "over the budget", "send smaller requests, or raise the budget"},
	ReasonFull:        {ReasonFull, sema.ErrFull, "too few permits free", "wait with Admit, or raise the limit"},
	ReasonQueueFull:   {ReasonQueueFull, sema.ErrQueueFull, "queue full", "retry later, or raise the limit or MaxWaiters"},
	ReasonTimeout:     {ReasonTimeout, sema.ErrTimeout, "waited too long", "retry later, or raise the limit or the wait budget"},
	ReasonOverloaded:  {ReasonOverloaded, wfq.ErrOverloaded, "the class is overloaded", "retry later, or raise the share of the class"},
	ReasonUnavailable: {ReasonUnavailable, sema.ErrUnavailable, "the store behind a gate does not reply", "check that the store runs and can be reached"},
}
