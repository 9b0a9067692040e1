package serve

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestServe_TenThousandWait lets ten thousand requests wait, each over its own connection. All are
// served, never more at a time than there are permits. The test fails only if the server is stuck:
// the total time depends on the machine. If the machine is slow for a moment, the server replies 503
// or disconnects, and clients retry.
func TestServe_TenThousandWait(t *testing.T) {
	const permits = 20
	many := int64(10_000)
	if raceEnabled {
		many = 1_000 // ten thousand take more than 10 GB in the race detector
	}
	directory := t.TempDir()
	config := filepath.Join(directory, "sema.yaml")
	if err := os.WriteFile(config, []byte("limits: {max_wait: 1h}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, directory, "--listen", anywhere, "--config", config)
	at := "/v1/semaphores/many"
	all := p.want(http.StatusCreated, "POST", fmt.Sprintf("%s/leases?capacity=%d&weight=%[2]d&ttl=1h", at, permits))
	var wg sync.WaitGroup
	var connected, inside, most, served atomic.Int64
	dialing := make(chan struct{}, 64)
	for i := range int(many) {
		wg.Go(func() {
			c := &wire{url: p.url, key: i, dialing: dialing, gone: p.done, connected: func() { connected.Add(1) }}
			defer c.close()
			status, lease, err := c.request("POST", at+"/leases?wait=1h")
			if err != nil || status != http.StatusCreated {
				t.Errorf("acquire: %d, %v", status, err)
				return
			}
			for now := inside.Add(1); ; {
				if seen := most.Load(); now <= seen || most.CompareAndSwap(seen, now) {
					break
				}
			}
			inside.Add(-1)
			if status, _, err := c.request("DELETE", at+"/leases/"+lease); err != nil || status != http.StatusNoContent {
				t.Errorf("release: %d, %v", status, err)
			}
			served.Add(1)
		})
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	advance := func(what string, count func() int64) {
		t.Helper()
		if at, stuck := advances(ended, many, count); stuck {
			p.kill() // ends the requests
			<-ended
			t.Fatalf("%s: stuck at %d of %d: %s", what, at, many, p.log)
		}
	}
	advance("connected", connected.Load)
	advance("waiting", func() int64 {
		state := p.want(http.StatusOK, "GET", "/v1/semaphores").body["semaphores"].([]any)[0].(map[string]any)
		return int64(state["waiting"].(float64))
	})
	p.want(http.StatusNoContent, "DELETE", all.at)
	advance("served", served.Load)
	<-ended
	if served.Load() != many || most.Load() > permits {
		t.Errorf("%d of %d were served, %d at a time of %d", served.Load(), many, most.Load(), permits)
	}
	if left := p.want(http.StatusOK, "GET", at); left.body["in_use"] != 0.0 || left.body["waiting"] != 0.0 {
		t.Errorf("%v", left)
	}
}

// advances returns once a count has reached the wanted value, or the requests have ended. It reports
// a count that has not changed for five minutes.
func advances(ended <-chan struct{}, want int64, count func() int64) (last int64, stuck bool) {
	const still = 5 * time.Minute
	for changed := time.Now(); time.Since(changed) < still; {
		now := count()
		if now == want {
			return now, false
		}
		if now != last {
			last, changed = now, time.Now()
		}
		select {
		case <-ended:
			return last, false
		case <-time.After(300 * time.Millisecond): // listing ten thousand waiters takes time, too
		}
	}
	return last, true
}

// A wire is one connection with minimal overhead.
type wire struct {
	url       string
	key       int           // idempotency key of its requests, which are repeated
	dialing   chan struct{} // held while connecting
	gone      <-chan struct{}
	connected func() // called for the first connection
	conn      net.Conn
	from      *bufio.Reader
}

// request sends a request until the server decides it: it reconnects after a disconnect, and retries
// after 503, as long as the server runs.
func (w *wire) request(method, path string) (status int, lease string, err error) {
	for {
		if w.conn == nil {
			err = w.dial()
		}
		if w.conn != nil {
			if status, lease, err = w.try(method, path); err == nil && status != http.StatusServiceUnavailable {
				return status, lease, nil
			}
		}
		if err != nil {
			w.close()
		}
		select {
		case <-w.gone:
			return status, "", errors.Join(err, errors.New("the server has ended"))
		case <-time.After(time.Second):
		}
	}
}

// dial connects, and waits for the reply to a first request: a connection that the server has not
// accepted yet counts against the listener's backlog. If that overflows, requests are not seen until
// TCP retransmits them, which takes minutes.
func (w *wire) dial() (err error) {
	w.dialing <- struct{}{}
	defer func() { <-w.dialing }()
	if w.conn, err = net.Dial("tcp", strings.TrimPrefix(w.url, "http://")); err != nil {
		w.conn = nil
		return err
	}
	w.from = bufio.NewReaderSize(w.conn, 1024)
	response, err := w.send("GET", "/livez")
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
	}
	if err != nil {
		w.close()
		return err
	}
	w.connected()
	w.connected = func() {}
	return nil
}

func (w *wire) close() {
	if w.conn != nil {
		w.conn.Close()
		w.conn = nil
	}
}

func (w *wire) send(method, path string) (*http.Response, error) {
	if _, err := fmt.Fprintf(w.conn, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nIdempotency-Key: %d\r\n\r\n", method, path, w.key); err != nil {
		return nil, err
	}
	return http.ReadResponse(w.from, &http.Request{Method: method})
}

func (w *wire) try(method, path string) (status int, lease string, err error) {
	response, err := w.send(method, path)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	var body struct{ ID string }
	if response.StatusCode != http.StatusNoContent {
		err = json.NewDecoder(response.Body).Decode(&body)
	}
	return response.StatusCode, body.ID, err
}
