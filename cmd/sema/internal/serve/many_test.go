package serve

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Ten thousand wait, each over a connection of its own; all are served in the end,
// and never more at a time than may be.
func TestTenThousandWait(t *testing.T) {
	const many, permits = 10_000, 20
	p := serve(t, t.TempDir(), "--listen", anywhere)
	at := "/v1/semaphores/many"
	all := p.want(http.StatusCreated, "POST", fmt.Sprintf("%s/leases?capacity=%d&weight=%[2]d&ttl=5m", at, permits))
	var wg sync.WaitGroup
	var inside, most, served atomic.Int64
	dialing := make(chan struct{}, 64) // or the listener's backlog overflows
	for range many {
		wg.Go(func() {
			c, err := dial(p.url, dialing)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			status, lease, err := c.ask("POST", at+"/leases?wait=60s")
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
			if status, _, err := c.ask("DELETE", at+"/leases/"+lease); err != nil || status != http.StatusNoContent {
				t.Errorf("release: %d, %v", status, err)
			}
			served.Add(1)
		})
	}
	p.waitFor("all of them wait", func() bool {
		time.Sleep(300 * time.Millisecond) // to look at ten thousand takes a while, too
		return p.want(http.StatusOK, "GET", "/v1/semaphores").body["semaphores"].([]any)[0].(map[string]any)["waiting"] == float64(many)
	})
	p.want(http.StatusNoContent, "DELETE", all.at)
	wg.Wait()
	if served.Load() != many || most.Load() > permits {
		t.Errorf("%d of %d were served, %d at a time of %d", served.Load(), many, most.Load(), permits)
	}
	if left := p.want(http.StatusOK, "GET", at); left.body["in_use"] != 0.0 || left.body["waiting"] != 0.0 {
		t.Errorf("%v", left)
	}
}

// A wire is one connection, and as little else as possible.
type wire struct {
	net.Conn
	from *bufio.Reader
}

func dial(url string, some chan struct{}) (*wire, error) {
	some <- struct{}{}
	defer func() { <-some }()
	c, err := net.DialTimeout("tcp", strings.TrimPrefix(url, "http://"), 30*time.Second)
	if err != nil {
		return nil, err
	}
	return &wire{c, bufio.NewReaderSize(c, 1024)}, nil
}

func (w *wire) ask(method, path string) (status int, lease string, err error) {
	if _, err = fmt.Fprintf(w, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", method, path); err != nil {
		return 0, "", err
	}
	response, err := http.ReadResponse(w.from, &http.Request{Method: method})
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	var body struct{ Lease string }
	if response.StatusCode != http.StatusNoContent {
		err = json.NewDecoder(response.Body).Decode(&body)
	}
	return response.StatusCode, body.Lease, err
}
