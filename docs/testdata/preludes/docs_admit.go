package prelude

type completion struct{ Usage struct{ TotalTokens int64 } }

var (
	addr, tenant, prompt string
	mux                  *http.ServeMux
	response             completion
)

func estimate(prompt string) int64
