// Package admit decides which requests a service accepts, so that it stays up when more
// arrive than it can serve.
//
//	q := wfq.New(100, sema.Name("api"), sema.MaxWaiters(200))
//	c := admit.New(admit.Config{Name: "api", Queue: q, MaxWait: 500 * time.Millisecond})
//	http.ListenAndServe(addr, admit.HTTP{Controller: c}.Handler(mux))
//
// A [Controller] checks a request in this order: the operator's switch and the drain, the
// deadline, the breaker, the rates, the budget, the queue. A request that one of them
// rejects costs nothing: what the earlier ones have taken is refunded exactly, and no
// memory is allocated. Each [Rejection] has a [Reason], is counted, and states when to ask
// again.
//
// What a request waits for is a [wfq.Queue]: its classes, tiers and orders decide which one
// is served next. A [Breaker] stops requests to a dependency that fails. A [Limit] finds the
// number of requests in flight that a dependency can bear.
//
// A single semaphore with [sema.MaxWaiters] and [sema.MaxWait] is enough for a program whose
// callers are all alike. Package rate suffices to bound how often something starts. Use a
// Controller at the edge of a service, where several of these meet and every rejection needs
// a reason, a status code and a time to retry.
package admit
