package server_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/sema-go/sema/x/server"
)

// BenchmarkJSON measures a request over a kept-alive connection, beside one to a handler that
// does nothing. An acquire and its release are two requests.
func BenchmarkJSON(b *testing.B) {
	const connections = 32
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections, DisableCompression: true}}
	defer client.CloseIdleConnections()
	do := func(b *testing.B, method, url string) []byte {
		request, _ := http.NewRequest(method, url, nil)
		response, err := client.Do(request)
		if err != nil {
			b.Fatal(err)
		}
		defer response.Body.Close()
		raw, _ := io.ReadAll(response.Body)
		return raw
	}
	b.Run("sema", func(b *testing.B) {
		s := start(b, server.Options{})
		at := s.url + "/v1/semaphores/db/leases"
		do(b, "POST", at+"?capacity=1000")
		b.SetParallelism(connections / 2)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				var lease struct{ Lease string }
				if err := json.Unmarshal(do(b, "POST", at), &lease); err != nil || lease.Lease == "" {
					b.Error(err)
					return
				}
				if pb.Next() {
					do(b, "DELETE", at+"/"+lease.Lease)
				}
			}
		})
	})
	b.Run("bare", func(b *testing.B) {
		var n atomic.Int64
		body := bytes.Repeat([]byte("x"), 180)
		bare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { n.Add(1); w.Write(body) }))
		defer bare.Close()
		b.SetParallelism(connections / 2)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				do(b, "POST", bare.URL)
			}
		})
	})
}
