package measure

// A Kind is the kind of a metric.
type Kind uint8

const (
	Gauge     Kind = iota // a value at one moment
	Counter               // a sum that only grows
	Histogram             // a distribution
)

// A Desc describes a metric for all exporters.
type Desc struct {
	Name   string // of Prometheus, with its unit and the suffix of counters
	Help   string
	Unit   string // of OpenTelemetry, such as "s" or "{permit}"
	Kind   Kind
	Labels []string // in addition to backend and semaphore
}

// Names of labels. None is the name of a holder or a lease: there are too many.
const (
	LabelBackend   = "backend"
	LabelSemaphore = "semaphore"
	labelClass     = "class"
	labelEnd       = "outcome"
	labelReason    = "reason"
	labelResult    = "result"
	labelState     = "state"
	labelKind      = "kind"
)

var all []*Desc

func desc(kind Kind, name, unit, help string, labels ...string) *Desc {
	d := &Desc{Name: name, Help: help, Unit: unit, Kind: kind, Labels: labels}
	all = append(all, d)
	return d
}

// All returns the descriptions of all metrics.
func All() []*Desc { return all }

// The metrics of every gate.
var (
	capacity     = desc(Gauge, "sema_permits_capacity", "{permit}", "Permits that can be held at once; 0: paused. Absent if unlimited. Of a rate, its burst.")
	inUse        = desc(Gauge, "sema_permits_in_use", "{permit}", "Permits held, at backends host and fleet by all processes. Of a rate, permits that have yet to return.")
	debt         = desc(Gauge, "sema_permits_debt", "{permit}", "Permits held beyond the capacity after a shrink.")
	waiters      = desc(Gauge, "sema_waiters", "{waiter}", "Queued callers, at backend fleet those of this process.")
	headAge      = desc(Gauge, "sema_head_of_queue_age_seconds", "s", "How long the caller that has waited the longest has waited; 0: none waits. Absent if the gate is not observed.")
	oldestHold   = desc(Gauge, "sema_oldest_hold_seconds", "s", "How long the oldest recorded permit has been held. Absent without diagnostics.")
	isDraining   = desc(Gauge, "sema_draining", "1", "1 while Drain rejects callers.")
	isClosed     = desc(Gauge, "sema_closed", "1", "1 after Close.")
	acquires     = desc(Counter, "sema_acquires_total", "{acquire}", "Acquires that ended, by result.", labelEnd)
	waits        = desc(Counter, "sema_waits_total", "{acquire}", "Acquires that were queued, whatever their result.")
	waitSeconds  = desc(Counter, "sema_wait_seconds_total", "s", "Time that callers have spent in the queue, including those queued now.")
	rejections   = desc(Counter, "sema_acquire_rejections_total", "{acquire}", "Acquires that failed without a timeout or the end of their context, by reason. Absent if the gate is not observed.", labelReason)
	diagnostics  = desc(Counter, "sema_diagnostics_total", "{report}", "Reports of the diagnostics, by kind: leaked, overheld, over-released, inverted, deadlocked, mismatched, failed-open.", labelKind)
	wrongSetting = desc(Gauge, "sema_configuration_problem", "1", "1 if what the configuration file sets for the limit is not in force.")

	nameClashes = desc(Gauge, "sema_name_clashes", "{gate}", "Further gates with the same name. They are left out, or their distributions are. Absent if there is none.")

	// AcquireWait and Hold are fed by observers.
	AcquireWait = desc(Histogram, "sema_acquire_wait_seconds", "s", "How long acquires took to be granted or to fail, by result.", labelEnd)
	Hold        = desc(Histogram, "sema_hold_seconds", "s", "How long permits were held, of a sample.")
)

// The metrics of classes have names of their own, so that a sum over semaphores counts
// nothing twice.
var (
	classCapacity = desc(Gauge, "sema_class_permits_capacity", "{permit}", "Permits that the class can hold at once.", labelClass)
	classInUse    = desc(Gauge, "sema_class_permits_in_use", "{permit}", "Permits that the class holds.", labelClass)
	classWaiters  = desc(Gauge, "sema_class_waiters", "{waiter}", "Queued callers of the class.", labelClass)
	classHeadAge  = desc(Gauge, "sema_class_head_of_queue_age_seconds", "s", "How long the oldest waiter of the class has waited; 0: none waits.", labelClass)
	classAcquires = desc(Counter, "sema_class_acquires_total", "{acquire}", "Acquires of the class that ended, by result.", labelClass, labelEnd)
	classWaitTime = desc(Counter, "sema_class_wait_seconds_total", "s", "Time that callers of the class have spent in the queue.", labelClass)
	classSheds    = desc(Counter, "sema_class_sheds_total", "{request}", "Requests of the class that admission control rejected, by reason.", labelClass, labelReason)

	// ClassWait is fed by observers.
	ClassWait = desc(Histogram, "sema_class_acquire_wait_seconds", "s", "How long granted acquires of the class took.", labelClass)
)

// The metrics of particular kinds of gates.
var (
	rateLimit = desc(Gauge, "sema_rate_permits_per_second", "{permit}/s", "Permits that a rate grants per second.")

	poolItems      = desc(Gauge, "sema_pool_items", "{item}", "Items of a pool, by state; their sum is open.", labelState)
	poolPending    = desc(Gauge, "sema_pool_pending", "{caller}", "Callers that have a permit and wait for an item.")
	poolOpens      = desc(Counter, "sema_pool_opens_total", "{item}", "Items opened.")
	poolOpenErrors = desc(Counter, "sema_pool_open_errors_total", "{item}", "Calls of Open that failed.")
	poolCloses     = desc(Counter, "sema_pool_closes_total", "{item}", "Items closed, for any reason.")
	poolExpired    = desc(Counter, "sema_pool_expired_total", "{item}", "Items closed because of their age or idle time.")
	poolDiscards   = desc(Counter, "sema_pool_discards_total", "{item}", "Items that callers found broken.")
	poolChecks     = desc(Counter, "sema_pool_checks_total", "{item}", "Checks of items, by result.", labelResult)

	groupRunning  = desc(Gauge, "sema_group_running", "{function}", "Functions of a group that run.")
	groupFailures = desc(Counter, "sema_group_failures_total", "{function}", "Functions of a group that returned an error or panicked.")

	sheds    = desc(Counter, "sema_sheds_total", "{request}", "Requests that admission control rejected, by reason.", labelReason)
	degraded = desc(Counter, "sema_degraded_total", "{request}", "Requests that got a cheap response.")
	clamped  = desc(Counter, "sema_clamped_total", "{request}", "Weights and costs that were lowered to what can be granted at once.")
	shedding = desc(Gauge, "sema_shedding", "1", "1 while an operator has switched shedding on.")
	breaker  = desc(Gauge, "sema_breaker_state", "1", "1 for the state in which the breaker is.", labelState)
	adaptive = desc(Gauge, "sema_adaptive_limit", "{permit}", "The limit that adapts to the dependency.")

	leaseHeld     = desc(Gauge, "sema_leases_held_permits", "{permit}", "Permits of a fleet semaphore that this process holds.")
	renewals      = desc(Counter, "sema_lease_renewals_total", "{batch}", "Heartbeats that renewed leases, by result.", labelResult)
	leasesLost    = desc(Counter, "sema_leases_lost_total", "{lease}", "Leases lost while their permits were held, by reason.", labelReason)
	exchanges     = desc(Counter, "sema_store_exchanges_total", "{batch}", "Batches sent to the store.")
	exchangeTime  = desc(Counter, "sema_store_exchange_seconds_total", "s", "Time of the batches; divided by their number, the latency of the store.")
	exchangeFails = desc(Counter, "sema_store_failures_total", "{batch}", "Exchanges without a reply in time.")
	notifications = desc(Counter, "sema_store_notifications_total", "{notification}", "Notifications received from the store.")
	sessionsLost  = desc(Counter, "sema_sessions_lost_total", "{session}", "Sessions with the store that were lost.")
	failedOpen    = desc(Gauge, "sema_failed_open", "1", "1 while the store is unavailable and the local limit applies.")
	heldOpen      = desc(Gauge, "sema_failed_open_permits", "{permit}", "Permits of the local limit that this process holds.")
)

// The metrics of the exporter itself have no labels backend and semaphore.
var (
	buildInfo = desc(Gauge, "sema_build_info", "1", "1, with the versions.", "version", "go_version")
	folded    = desc(Counter, "sema_folded_total", "{event}", "Events of undeclared names, and scrapes of undeclared classes, that went to the series \"other\": there are too many names, or another gate has the name.", labelKind)
)

// own reports whether d is about the exporter itself.
func (d *Desc) own() bool { return d == buildInfo || d == folded }

// LabelNames returns the names of all labels, in the order of [Sample.Values].
func (d *Desc) LabelNames() []string {
	if d.own() {
		return d.Labels
	}
	return append([]string{LabelBackend, LabelSemaphore}, d.Labels...)
}
