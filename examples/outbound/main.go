// Command outbound calls a service that has limits: so many requests a second, and so
// many at once. Workers share one [http.Client] whose transport keeps both limits. If the
// service replies 429 or 503 with Retry-After, all of them pause. Without a URL it calls
// a server of its own, which replies 429 to the 20th request.
//
//	go run ./examples/outbound
//	go run ./examples/outbound -rate 10 -n 2 -requests 50 https://example.com/api
//
// It prints the requests that succeeded, the attempts that took, and how many ran at
// once. Its exit code is 1 if a request failed.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/group"
	"github.com/sema-go/sema/rate"
)

func main() {
	perSecond := flag.Int64("rate", 50, "requests a second")
	atOnce := flag.Int64("n", 4, "requests at once")
	requests := flag.Int("requests", 60, "requests to send")
	flag.Parse()
	if *perSecond < 1 || *atOnce < 1 || *requests < 1 {
		fmt.Fprintln(os.Stderr, "outbound: want a rate, a number at once and requests of at least 1")
		os.Exit(2)
	}
	url := flag.Arg(0)
	if url == "" {
		server := httptest.NewServer(serve())
		defer server.Close()
		url = server.URL
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	limited := &transport{
		next:     http.DefaultTransport,
		inFlight: sema.New(*atOnce, sema.Name("in flight")),
		rate:     rate.New(*perSecond, time.Second, rate.Burst(*atOnce), sema.Name("rate")),
	}
	client := &http.Client{Transport: limited}
	start := time.Now()
	workers := sema.New(2 * *atOnce) // more than the service admits: the transport makes them wait
	err := group.Each(ctx, workers, numbers(*requests), func(ctx context.Context, i int) error {
		return call(ctx, client, fmt.Sprintf("%s/%d", url, i))
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "outbound:", err)
		os.Exit(1)
	}
	fmt.Printf("%d requests done, %d attempts, at most %d at once, %v\n",
		*requests, limited.attempts.Load(), limited.running.Most(), time.Since(start).Round(time.Millisecond))
}

// numbers yields 0 to n-1: the queue of the workers.
func numbers(n int) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for i := 0; i < n && yield(i); i++ {
		}
	}
}

// call sends a request, and again if the service has asked for that: the transport then
// waits until it may.
func call(ctx context.Context, client *http.Client, url string) error {
	for attempt := 1; ; attempt++ {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		switch _, again := retryAfter(resp); {
		case err != nil:
			return fmt.Errorf("%s: %w", url, err)
		case resp.StatusCode == http.StatusOK:
			return nil
		case !again || attempt == 5:
			return fmt.Errorf("%s: %s", url, resp.Status)
		}
	}
}

// serve returns a service that is overloaded once.
func serve() http.Handler {
	var served atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(20 * time.Millisecond)
		if served.Add(1) == 20 {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "overloaded", http.StatusTooManyRequests)
		}
	})
}
