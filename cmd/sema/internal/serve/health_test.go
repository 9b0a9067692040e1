package serve

import (
	"testing"

	"github.com/sema-go/sema/internal/storetest"
)

// TestHealth_RepliesWhileTheServerRuns checks that a health check succeeds as long as the server
// replies, with or without TLS and tokens.
func TestHealth_RepliesWhileTheServerRuns(t *testing.T) {
	t.Parallel()
	cert, key := storetest.NewAuthority(t).Issue(t, "server")
	for name, flags := range map[string][]string{"plain": nil, "TLS": {"--tls-cert", cert, "--tls-key", key}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			directory := t.TempDir()
			p := serve(t, directory, append([]string{"--listen", anywhere}, flags...)...)
			if output, err := command(t, directory, "serve", "health", p.url).CombinedOutput(); err != nil {
				t.Errorf("running: %v: %s", err, output)
			}
			p.kill()
			if output, err := command(t, directory, "serve", "health", p.url).CombinedOutput(); err == nil {
				t.Errorf("killed: healthy: %s", output)
			}
		})
	}
}
