// Command drain is an HTTP service that ends without breaking off requests. On SIGTERM or
// Ctrl-C it rejects new requests with 503, so that the load balancer sends them elsewhere,
// completes those that it has accepted, and then exits with code 0.
//
//	go run ./examples/drain                          # sends requests to itself, and then ends
//	go run ./examples/drain -listen localhost:8080   # until it receives SIGTERM
//	curl -d work localhost:8080
//
// A request still needs a database connection after the drain has begun. So the limit at
// which work enters the program is drained first, and then all others: see
// [registry.Registry.Drain]. If a request does not end within -grace, the exit code is 1
// and the error names the limit that is still in use.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/registry"
)

func main() {
	listen := flag.String("listen", "", "address to listen at; default: any, and send requests to it")
	grace := flag.Duration("grace", 20*time.Second, "time that requests have to end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx, *listen, *grace); err != nil {
		fmt.Fprintln(os.Stderr, "drain:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends, and then drains.
func run(ctx context.Context, address string, grace time.Duration) error {
	limits := registry.New()
	s := &service{
		http: limits.Semaphore("http", 100, "100 requests fit into the memory of the machine"),
		db:   limits.Semaphore("db", 10, "the database accepts 10 connections of each service"),
	}
	listener, err := net.Listen("tcp", orLoopback(address))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: s}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	fmt.Println("listening at", listener.Addr())
	shown := func() {}
	if address == "" {
		ctx, shown = s.demonstrate(ctx, "http://"+listener.Addr().String())
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}

	within, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	fmt.Printf("draining: %d requests in progress\n", s.http.Stats().InUse)
	if err := limits.Drain(within, "http"); err != nil {
		return err
	}
	// Until here, requests were rejected by a reply. Now the listener is closed, too.
	if err := server.Shutdown(within); err != nil {
		return err
	}
	shown()
	fmt.Printf("drained: %d requests completed, %d rejected\n", s.http.Stats().Acquired, s.http.Stats().Rejected)
	return nil
}

type service struct{ http, db *sema.Semaphore }

// ServeHTTP reads the body of a request, and stores it.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := sema.Do(r.Context(), s.http, 1, func(ctx context.Context) error {
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20)) // as slow as the client sends it
		if err != nil {
			return err
		}
		return sema.Do(ctx, s.db, 1, func(context.Context) error { // also while the service drains
			fmt.Fprintf(w, "%d bytes stored\n", len(body))
			return nil
		})
	})
	switch {
	case errors.Is(err, sema.ErrDraining):
		w.Header().Set("Connection", "close")
		w.Header().Set("Retry-After", "1")
		http.Error(w, "the service is shutting down", http.StatusServiceUnavailable)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func orLoopback(address string) string {
	if address == "" {
		return "127.0.0.1:0"
	}
	return address
}
