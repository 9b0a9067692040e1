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

// healthCommand returns the command "sema serve health", for images that have no other program.
func healthCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "health [URL]",
		Short: "Exit with 0 if a server replies at /livez",
		Long: `Check whether a server works, as the HEALTHCHECK of a container: exit with 0 if it
replies at /livez, which needs no token. Its certificate is not verified. Check a
server that requires client certificates with a TCP connection instead.`,
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
		// No secret is sent, and the reply only shows that a server is there.
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
