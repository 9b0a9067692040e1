// Package wfq shares one capacity among classes by weight: tenants, tiers, kinds of work.
//
//	q := wfq.New(40, sema.Name("db"))
//	q.Set("paid", wfq.Share{Weight: 4})
//	q.Set("batch", wfq.Share{Max: 10, Tier: -1})
//	…
//	p, err := q.Class(tenant).Acquire(ctx, 1)
//
// While permits are free, every class takes what it needs. When callers wait, the queue
// serves the class that has used the least for its weight. Use is measured in
// permit-seconds: a tenant whose requests take ten times as long gets a tenth as many of
// them. A class that waits earns nothing by having been idle, and one that has used more
// than its share is not forgiven by a pause.
//
// A [Share] bounds a class from below (Min) and above (Max), puts it into a Tier, and
// selects the [Order] of its waiters. Classes need not be declared: [Queue.Class] creates
// them, and those that are idle are garbage-collected, so that a class per user is fine.
//
// A [Queue] is a [sema.Gate] itself. It acquires in the class that [With] put into the
// context. [Over] puts a fair queue in front of another gate: a fleet semaphore, a rate, or
// a class of another queue.
//
// For callers that are all alike, use [sema.Semaphore]: it costs two thirds. For a bound
// of each key without a common capacity, use package group.
package wfq
