package server_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/sema-go/sema/x/semav1"
	"github.com/sema-go/sema/x/semav1/semav1connect"
	"github.com/sema-go/sema/x/server"
)

// TestNumbered_Slots checks that a semaphore is numbered however it is created, and that
// its leases have slots wherever they are shown.
func TestNumbered_Slots(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Declared: []server.Declaration{{Name: "declared", Capacity: 8, Numbered: true}}})
	c := semav1connect.NewSemaServiceClient(s.http.Client(), s.url)
	settings := &semav1.Settings{Capacity: new(int64(8)), Numbered: new(true)}
	leases := func(name string) string { return "/v1/semaphores/" + name + "/leases" }
	created := map[string]func() jsonReply{
		"declared": func() jsonReply { return s.want(201, "POST", leases("declared")+"?weight=2", "") },
		"parameters": func() jsonReply {
			return s.want(201, "POST", leases("parameters")+"?weight=2&capacity=8&numbered=true", "")
		},
		"body": func() jsonReply {
			return s.want(201, "POST", leases("body"), `{"weight": 2, "capacity": 8, "numbered": true}`)
		},
		"configured": func() jsonReply {
			s.want(201, "PUT", "/v1/semaphores/configured", `{"capacity": 8, "numbered": true}`)
			return s.want(201, "POST", leases("configured"), `{"weight": 2}`)
		},
		"over-rpc": func() jsonReply {
			if m, err := c.Configure(t.Context(), &semav1.ConfigureRequest{Semaphore: "over-rpc", Settings: settings}); err != nil || !m.Semaphore.Numbered {
				t.Error(m, err)
			}
			return s.want(201, "POST", leases("over-rpc"), `{"weight": 2}`)
		},
	}
	for name, create := range created {
		first := create()
		m, err := c.Acquire(t.Context(), &semav1.AcquireRequest{Semaphore: name, Weight: 3, Settings: settings})
		if err != nil || !reflect.DeepEqual(first.body["slots"], []any{0.0, 1.0}) || !reflect.DeepEqual(m.Lease.Slots, []uint32{2, 3, 4}) {
			t.Errorf("%s: %v, then %v, %v", name, first.body, m, err)
		}
		renewed := s.want(200, "PUT", first.header.Get("Location"), "")
		if !reflect.DeepEqual(renewed.body["slots"], first.body["slots"]) {
			t.Errorf("%s: slots %v after a renewal", name, renewed.body["slots"])
		}
		shown := s.want(200, "GET", "/v1/semaphores/"+name, "").body
		var slots []any
		for _, h := range shown["holders"].([]any) {
			slots = append(slots, h.(map[string]any)["slots"])
		}
		if want := []any{[]any{0.0, 1.0}, []any{2.0, 3.0, 4.0}}; shown["numbered"] != true || !reflect.DeepEqual(slots, want) {
			t.Errorf("%s: %v", name, shown)
		}
	}
	for _, one := range s.want(200, "GET", "/v1/semaphores", "").body["semaphores"].([]any) {
		if one.(map[string]any)["numbered"] != true {
			t.Errorf("%v", one)
		}
	}
}

// TestNumbered_IsNotTheDefault checks that the leases of other semaphores have no slots.
func TestNumbered_IsNotTheDefault(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	lease := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1&numbered=false", "")
	shown := s.want(200, "GET", "/v1/semaphores/db", "")
	if strings.Contains(lease.text+shown.text, "slots") || shown.body["numbered"] != false {
		t.Errorf("%s, %s", lease.text, shown.text)
	}
}

// TestNumbered_IsFixed checks that numbered is fixed when a semaphore is created, and that
// a rate and very many permits have no numbers.
func TestNumbered_IsFixed(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	s.want(201, "PUT", "/v1/semaphores/gpu", `{"capacity": 8, "numbered": true}`)
	s.want(200, "PUT", "/v1/semaphores/gpu", `{"capacity": 4, "numbered": true}`)
	fixed := s.want(409, "PUT", "/v1/semaphores/gpu", `{"numbered": false}`)
	if detail := fmt.Sprint(fixed.body["detail"]); fixed.body["type"] != "/problems/setting-fixed" || !strings.Contains(detail, "numbered: it is true") {
		t.Errorf("%v", fixed.body)
	}
	c := semav1connect.NewSemaServiceClient(s.http.Client(), s.url)
	_, err := c.Configure(t.Context(), &semav1.ConfigureRequest{Semaphore: "gpu", Settings: &semav1.Settings{Numbered: new(false)}})
	if connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Error(err)
	}
	for _, settings := range []string{`"capacity": 8, "window": "1m"`, `"capacity": 1025`} {
		s.want(400, "PUT", "/v1/semaphores/other", `{"numbered": true, `+settings+`}`)
		s.want(400, "POST", "/v1/semaphores/other/leases", `{"numbered": true, `+settings+`}`)
	}
	s.want(400, "PUT", "/v1/semaphores/gpu", `{"capacity": 1025}`)
	for _, other := range []string{"1", "yes", "TRUE", ""} {
		if a := s.want(400, "POST", "/v1/semaphores/other/leases?capacity=1&numbered="+other, ""); !strings.Contains(a.text, "want true or false") {
			t.Error(a.text)
		}
	}
	if _, err := server.New(nil, server.Options{Declared: []server.Declaration{{Name: "many", Capacity: 1025, Numbered: true}}}); err == nil {
		t.Error("1025 numbered permits were declared")
	}
}

// TestNumbered_Dashboard checks that the page of a numbered semaphore has a column with
// the slots of its holders.
func TestNumbered_Dashboard(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	s.want(201, "POST", "/v1/semaphores/gpu/leases?capacity=8&numbered=true&weight=2", "")
	s.want(201, "POST", "/v1/semaphores/gpu/leases", "")
	s.want(201, "POST", "/v1/semaphores/db/leases?capacity=8", "")
	numbered, plain := s.tab().get(200, "/ui/semaphore?name=gpu"), s.tab().get(200, "/ui/semaphore?name=db")
	numbered.contains(t, `<th scope="col">Slots</th>`)
	numbered.contains(t, `<td class="slots" data-label="slots">0-1</td>`)
	numbered.contains(t, `<td class="slots" data-label="slots">2</td>`)
	numbered.contains(t, "Numbered</dt><dd>yes")
	if strings.Contains(plain.text, "lots") || strings.Contains(plain.text, "umbered") {
		t.Error(plain.text)
	}
}
