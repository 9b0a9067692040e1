// Package prelude declares what blocks of docs/admit.md use without declaring it.
package prelude

var (
	addr, tenant string
	mux          *http.ServeMux
	request      *http.Request
	completion   struct{ Usage struct{ TotalTokens int64 } }
	store        *fleet.Client
)

func estimate(*http.Request) int64
