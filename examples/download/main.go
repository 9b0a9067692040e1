// Command download fetches many URLs, a few at a time, with a bound on the bytes a
// second of all of them together. Without URLs it fetches 40 from a server of its own.
//
//	go run ./examples/download
//	go run ./examples/download -n 4 -bandwidth 100000 https://go.dev/ https://pkg.go.dev/
//
// It prints how often each status occurred, the bytes, the time, and how many downloads
// ran at once. Its exit code is 1 if a download failed.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/examples/internal/peak"
	"github.com/sema-go/sema/group"
	"github.com/sema-go/sema/rate"
)

func main() {
	atOnce := flag.Int64("n", 8, "downloads at once")
	bandwidth := flag.Int64("bandwidth", 4_000_000, "bytes a second, of all downloads together")
	flag.Parse()
	if *atOnce < 1 || *bandwidth < 1 {
		fmt.Fprintln(os.Stderr, "download: want at least 1 download at once, and 1 byte a second")
		os.Exit(2)
	}
	urls := flag.Args()
	if len(urls) == 0 {
		server := httptest.NewServer(http.HandlerFunc(serve))
		defer server.Close()
		for i := range 40 {
			urls = append(urls, fmt.Sprintf("%s/%d", server.URL, i))
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	d := &downloader{
		slots: sema.New(*atOnce, sema.Name("downloads")),
		// The burst is what may arrive at once after a pause: a tenth of a second's worth.
		bytes: rate.New(*bandwidth, time.Second, rate.Burst(max(*bandwidth/10, 1)), sema.Name("bandwidth")),
	}
	start := time.Now()
	results, err := group.Map(ctx, d.slots, urls, d.fetch)
	if err != nil {
		fmt.Fprintln(os.Stderr, "download:", err)
		os.Exit(1)
	}
	failed := report(results)
	fmt.Printf("%d URLs in %v, at most %d at once\n", len(results), time.Since(start).Round(time.Millisecond), d.running.Most())
	if failed > 0 {
		os.Exit(1)
	}
}

type downloader struct {
	slots   *sema.Semaphore // one permit a download
	bytes   *rate.Gate      // one permit a byte
	running peak.Meter
}

// A result describes a download. A status of 404 is a result; err is a download that
// ended before all its bytes were read.
type result struct {
	url, status string
	bytes       int64
	err         error
}

// fetch downloads a URL. It returns failures in the result, so that the others go on: an
// error of a function ends the whole group.
func (d *downloader) fetch(ctx context.Context, url string) (result, error) {
	d.running.Add(1)
	defer d.running.Add(-1)
	r := result{url: url}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		r.err = err
		return r, nil
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.err = err
		return r, nil
	}
	defer resp.Body.Close()
	r.status = resp.Status
	r.bytes, r.err = io.Copy(io.Discard, rate.Reader(ctx, resp.Body, d.bytes))
	return r, nil
}

// report prints how often each status occurred, and returns the number of failures.
func report(results []result) (failed int) {
	statuses, bytes := map[string]int{}, int64(0)
	for _, r := range results {
		bytes += r.bytes
		if r.err != nil {
			fmt.Fprintf(os.Stderr, "download: %s: %v\n", r.url, r.err)
			failed++
		}
		statuses[cmp.Or(r.status, "no reply")]++
	}
	for _, status := range slices.Sorted(maps.Keys(statuses)) {
		fmt.Printf("%3d × %s\n", statuses[status], status)
	}
	fmt.Printf("%d bytes\n", bytes)
	return failed
}

// serve replies with 64 kB, and to every tenth URL that it does not exist.
func serve(w http.ResponseWriter, r *http.Request) {
	time.Sleep(20 * time.Millisecond)
	if r.URL.Path[len(r.URL.Path)-1] == '9' {
		http.NotFound(w, r)
		return
	}
	w.Write(make([]byte, 64_000))
}
