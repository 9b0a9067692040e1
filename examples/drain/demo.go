package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// demonstrate sends three requests that take a while, then ends the returned context as a
// signal would, and sends a fourth. It completes the three when the fourth was rejected.
// The returned function waits until all have replies.
func (s *service) demonstrate(ctx context.Context, url string) (ended context.Context, shown func()) {
	ended, end := context.WithCancel(ctx)
	var sent sync.WaitGroup
	sent.Go(func() {
		var slow sync.WaitGroup
		defer slow.Wait()
		var bodies []io.Closer
		for i := range 3 {
			body, writer := io.Pipe() // a request lasts as long as its body is open
			bodies = append(bodies, writer)
			slow.Go(func() { post(url, fmt.Sprintf("request %d", i+1), body) })
		}
		waitFor(func() bool { return s.http.Stats().InUse == 3 })
		end()
		waitFor(func() bool { return s.http.Stats().Draining })
		post(url, "request 4", strings.NewReader("late"))
		for _, b := range bodies {
			b.Close()
		}
	})
	return ended, sent.Wait
}

func post(url, what string, body io.Reader) {
	resp, err := http.Post(url, "text/plain", body)
	if err != nil {
		fmt.Printf("%s: %v\n", what, err)
		return
	}
	defer resp.Body.Close()
	fmt.Printf("%s: %s\n", what, resp.Status)
}

func waitFor(condition func() bool) {
	for !condition() {
		time.Sleep(time.Millisecond)
	}
}
