package admit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
)

func Example() {
	c := admit.New(admit.Config{Name: "api", Queue: wfq.New(1, sema.MaxWaiters(0)), Logger: quiet})
	ctx := context.Background()
	a, err := c.Admit(ctx, admit.Request{Class: "paid"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.Done(admit.OK)
	_, err = c.Admit(ctx, admit.Request{Class: "free"})
	fmt.Println(err)
	fmt.Println(sema.Reason(err), errors.Is(err, sema.ErrFull))
	// Output:
	// admit "api", class "free": queue full
	// queue-full true
}

func ExampleHTTP_Handler() {
	c := admit.New(admit.Config{Queue: wfq.New(100, sema.MaxWaiters(200)), MaxWait: time.Second, Logger: quiet})
	handler := admit.HTTP{
		Controller: c,
		Class:      func(r *http.Request) string { return r.Header.Get("X-Tenant") }, // set by your authentication
	}.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	c.Shed(true) // an operator has switched shedding on

	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	fmt.Println(w.Code, w.Header().Get("X-Shed-Reason"))
	// Output: 503 shedding
}

func ExampleBreaker() {
	b := admit.NewBreaker(admit.BreakerConfig{MinCalls: 3})
	for range 3 {
		call, err := b.Allow()
		if err != nil {
			fmt.Println(err)
			return
		}
		call.Done(admit.Failed, 10*time.Millisecond)
	}
	_, err := b.Allow()
	fmt.Println(b.State())
	fmt.Println(sema.Hint(err))
	// Output:
	// open
	// look at the dependency: its calls fail or are slow
}

func ExampleAdapt() {
	s := sema.New(20)
	limit := admit.Adapt(s, &admit.AIMD{Min: 5, Max: 50})
	call := func() error { return nil } // to the dependency
	start := time.Now()
	err := call()
	limit.Sample(admit.ResultOf(err), time.Since(start))
	fmt.Println(limit.Limit())
	// Output: 20
}

// The budgets of an upstream: requests and tokens per minute, and requests at once. The
// tokens of a request are estimated first and settled after.
func ExampleController_llm() {
	c := admit.New(admit.Config{
		Name: "llm", Queue: wfq.New(20), Logger: quiet,
		Rate:   rate.New(480, time.Minute, rate.Burst(10)),
		Budget: rate.New(95_000, time.Minute, rate.Burst(3_000)),
	})
	a, err := c.Admit(context.Background(), admit.Request{Cost: 2_000}) // the estimate
	if err != nil {
		fmt.Println(err)
		return
	}
	a.Settle(700) // what the response has used
	a.Done(admit.OK)
	fmt.Println(c.Stats().InUse)
	// Output: 0
}

func ExampleListener() {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	connections, err := admit.Descriptors(100) // leaves 100 for files
	if err != nil {
		connections = sema.New(1000)
	}
	s.Listener = admit.Listener(s.Listener, connections)
	s.Start()
	defer s.Close()
	resp, err := http.Get(s.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	fmt.Println(resp.StatusCode)
	// Output: 404
}
