package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"

	"github.com/sony/gobreaker/v2"

	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/x/server"
)

// A server is an http.Handler: it may be part of any program.
func Example() {
	s, err := server.New(memstore.New(), server.Options{
		Declared: []server.Declaration{{Name: "db", Capacity: 1}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close(context.Background())
	listening := httptest.NewServer(s)
	defer listening.Close()

	for range 2 {
		response, err := http.Post(listening.URL+"/v1/semaphores/db/leases", "", nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		response.Body.Close()
		fmt.Println(response.Status)
	}
	// Output:
	// 201 Created
	// 429 Too Many Requests
}

// A client's circuit breaker treats "full" as a failure: after a few rejections it sends no
// requests for a while.
func Example_breaker() {
	s, err := server.New(memstore.New(), server.Options{
		Declared: []server.Declaration{{Name: "db", Capacity: 1}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close(context.Background())
	listening := httptest.NewServer(s)
	defer listening.Close()

	breaker := gobreaker.NewCircuitBreaker[string](gobreaker.Settings{
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 2 },
	})
	acquire := func() (lease string, err error) {
		return breaker.Execute(func() (string, error) {
			response, err := http.Post(listening.URL+"/v1/semaphores/db/leases", "", nil)
			if err != nil {
				return "", err
			}
			defer response.Body.Close()
			if response.StatusCode == http.StatusTooManyRequests {
				after, err := strconv.Atoi(response.Header.Get("Retry-After")) // differs, so that clients do not retry together
				return "", fmt.Errorf("full, retry after at least 1 s: %t", err == nil && after >= 1)
			}
			return response.Header.Get("Location"), nil
		})
	}
	for range 5 {
		switch _, err := acquire(); {
		case errors.Is(err, gobreaker.ErrOpenState):
			fmt.Println("breaker open, no request sent")
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Println("acquired")
		}
	}
	// Output:
	// acquired
	// full, retry after at least 1 s: true
	// full, retry after at least 1 s: true
	// breaker open, no request sent
	// breaker open, no request sent
}
