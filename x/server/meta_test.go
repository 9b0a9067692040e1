package server_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/sema-go/sema/x/semav1"
	"github.com/sema-go/sema/x/semav1/semav1connect"
	"github.com/sema-go/sema/x/server"
)

var metas = []string{
	"cron", "", " leading and trailing ", `by="x"`, "key=abc", `job by="jobs" key=00ff`, `x [by="jobs" key=0123456789abcdef01234567]`, "[]", " []", "x []", " [] []", `<b>&"\`, "naïve ☃", strings.Repeat("x", 800),
}

// TestMeta_IsReturnedUnchanged checks that a client's text is listed as it was sent, whatever the
// server adds.
func TestMeta_IsReturnedUnchanged(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"", "secret"} {
		for _, key := range []string{"", "k"} {
			for i, meta := range metas {
				o := server.Options{}
				if token != "" {
					o.Tokens = []server.Token{{Name: `team "a" [x]`, Hash: server.HashToken(token), Verbs: server.Verbs()}}
				}
				s := start(t, o)
				s.auth = token
				var headers []header
				if key != "" {
					headers = append(headers, header{"Idempotency-Key", key})
				}
				if i%2 == 0 {
					s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1&holder="+url.QueryEscape(meta), "", headers...)
				} else {
					body, _ := json.Marshal(map[string]any{"capacity": 1, "holder": meta})
					s.want(201, "POST", "/v1/semaphores/db/leases", string(body), headers...)
				}
				holder := s.want(200, "GET", "/v1/semaphores/db", "").body["holders"].([]any)[0].(map[string]any)
				if got, _ := holder["holder"].(string); got != meta {
					t.Errorf("token %q, key %q: %q was returned as %q", token, key, meta, got)
				}
				if by, _ := holder["by"].(string); by != map[string]string{"": "", "secret": `team "a" [x]`}[token] {
					t.Errorf("token %q: by %q", token, by)
				}
				client := semav1connect.NewSemaServiceClient(s.http.Client(), s.url, connect.WithInterceptors(unaryBearer(token)))
				seen, err := client.Info(t.Context(), &semav1.InfoRequest{Semaphore: "db"})
				if err != nil || seen.Holders[0].Holder != meta {
					t.Errorf("token %q, key %q: %q was returned as %v, %v", token, key, meta, seen, err)
				}
			}
		}
	}
}

func TestMeta_OfAWaiter(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	at := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1", "").header.Get("Location")
	var wg sync.WaitGroup
	wg.Go(func() {
		s.want(201, "POST", "/v1/semaphores/db/leases?wait=30s&holder=x+by%3Dy", "", header{"Idempotency-Key", "k"})
	})
	waitFor(t, "the waiter is listed with its text", func() bool {
		waiters, _ := s.send("GET", "/v1/semaphores/db", "").body["waiters"].([]any)
		return len(waiters) == 1 && waiters[0].(map[string]any)["holder"] == "x by=y"
	})
	s.want(204, "DELETE", at, "")
	wg.Wait()
}
