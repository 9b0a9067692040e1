package serve

import (
	"crypto/tls"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
)

// healthTimeout bounds a health check, which container runtimes repeat.
const healthTimeout = 5 * time.Second

// healthCommand is `sema serve health`, for images that have no other program.
func healthCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "health [URL]",
		Short: "Exit with 0 if a server replies at /livez",
		Long: `Ask a server whether it works, as the HEALTHCHECK of a container does: exit with 0
if it replies at /livez, which needs no token. Its certificate is not verified. A
server that demands client certificates is better checked by a TCP connection.`,
		Example: `  sema serve health
  sema serve health https://127.0.0.1:7362`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			url := "http://127.0.0.1:7362"
			if len(args) == 1 {
				url = args[0]
			}
			return checkHealth(url)
		},
	}
}

func checkHealth(url string) error {
	client := http.Client{
		Timeout: healthTimeout,
		// No secret is sent, and nothing is believed but that a server is there.
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
	}
	response, err := client.Get(url + "/livez")
	if err != nil {
		return exit.Errorf(exit.Unavailable, "%w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return exit.Errorf(exit.Unavailable, "%s/livez: %s", url, response.Status)
	}
	return nil
}
