package serve

import (
	"context"
	"crypto/tls"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/x/server"
)

// A reloader replaces tokens and certificates on SIGHUP, while the server runs. Permits, waiting
// requests and connections stay.
type reloader struct {
	current Config
	read    func() (Config, error) // reads the current configuration
	server  *server.Server
	secure  *securing
	logger  *slog.Logger
}

// run reloads on each signal, until ctx ends.
func (r *reloader) run(ctx context.Context, hangup <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
			r.reload()
		}
	}
}

// reload reads everything before it changes anything: an invalid configuration changes nothing.
func (r *reloader) reload() {
	wanted, err := r.read()
	var loaded *tls.Config
	if err == nil {
		loaded, err = wanted.tls()
	}
	if err == nil && (loaded == nil) != (r.secure == nil) {
		err = exit.Misuse("tls cannot be switched on or off while the server runs").With("restart it")
	}
	if err == nil {
		err = r.server.SetTokens(wanted.Tokens)
	}
	if err != nil {
		r.logger.Error("reload failed, nothing was changed", "error", err, "hint", sema.Hint(err))
		return
	}
	changed := changes(r.current, wanted)
	if r.secure != nil && r.secure.replace(loaded) {
		changed = append(changed, "certificates")
	}
	if len(changed) == 0 {
		changed = append(changed, "nothing")
	}
	r.logger.Info("reloaded", "changed", strings.Join(changed, ", "))
	if ignored := r.current.unreloadable(wanted); len(ignored) > 0 {
		r.logger.Warn("changes that need a restart", "settings", strings.Join(ignored, ", "))
	}
	r.current.Tokens, r.current.TLS = wanted.Tokens, wanted.TLS
}

// changes lists the tokens that were added, changed and removed, by name.
func changes(before, after Config) (changed []string) {
	named := func(tokens []server.Token, name string) *server.Token {
		if i := slices.IndexFunc(tokens, func(t server.Token) bool { return t.Name == name }); i >= 0 {
			return &tokens[i]
		}
		return nil
	}
	for _, t := range after.Tokens {
		switch old := named(before.Tokens, t.Name); {
		case old == nil:
			changed = append(changed, "token "+t.Name+" added")
		case !reflect.DeepEqual(*old, t):
			changed = append(changed, "token "+t.Name+" changed")
		}
	}
	for _, t := range before.Tokens {
		if named(after.Tokens, t.Name) == nil {
			changed = append(changed, "token "+t.Name+" removed")
		}
	}
	return changed
}

// unreloadable lists the changed settings that apply only after a restart.
func (c Config) unreloadable(after Config) (settings []string) {
	for i, before := range c.settings() {
		if now := after.settings()[i]; !reflect.DeepEqual(before.value, now.value) {
			settings = append(settings, now.name)
		}
	}
	return settings
}

type setting struct {
	name  string
	value any
}

func (c Config) settings() []setting {
	return []setting{
		{"listen", c.Listen}, {"store", c.Store}, {"insecure", c.Insecure}, {"history", c.History}, {"hosts", c.Hosts}, {"semaphores", c.Semaphores}, {"log", c.Log},
		{"limits", c.Limits}, {"ready_delay", c.ReadyDelay}, {"grace", c.Grace},
	}
}

// securing holds the TLS configuration for new connections.
type securing struct{ current atomic.Pointer[tls.Config] }

func newSecuring(c *tls.Config) *securing {
	s := &securing{}
	s.current.Store(c)
	return s
}

// config returns a configuration that uses the current one for each handshake.
func (s *securing) config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current.Load(), nil },
	}
}

// replace sets the configuration for new connections. It reports whether the configuration has
// changed.
func (s *securing) replace(c *tls.Config) bool {
	old := s.current.Swap(c)
	sameCA := old.ClientCAs == nil && c.ClientCAs == nil || old.ClientCAs != nil && c.ClientCAs != nil && old.ClientCAs.Equal(c.ClientCAs)
	return !sameCA || !reflect.DeepEqual(old.Certificates[0].Certificate, c.Certificates[0].Certificate)
}
