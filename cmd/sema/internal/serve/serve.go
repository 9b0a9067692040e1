// Package serve implements `sema serve`: it runs x/server as a process, with a configuration, a
// log and a graceful stop. Programs that embed the service mount x/server themselves.
package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sema-go/sema/cmd/sema/internal/dial"
	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/store"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	playground "github.com/sema-go/sema/x/play/site"
	"github.com/sema-go/sema/x/server"
)

// Command returns the command "sema serve".
func Command(version string) *cobra.Command {
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve permits to other machines, over HTTP",
		Long: `Serve permits to clients that can reach this machine: curl, Sema's Go library
(sema://host:7362), or any client of the OpenAPI description.

It needs nothing else: permits are stored in a file, and survive a restart. Over
Redis, PostgreSQL or etcd (--store), several servers form one service.`,
		Example: `  sema serve
  sema serve --demo
  sema serve --store redis://localhost:6379 --listen :7362 --config sema.yaml
  curl -X POST 'http://127.0.0.1:7362/v1/semaphores/demo/leases?capacity=3&wait=10s'`,
		Args: cobra.NoArgs,
	}
	c.AddCommand(healthCommand())
	config := defaults()
	var file string
	f := c.Flags()
	f.StringVar(&file, "config", "", "YAML `FILE` with tokens, semaphores and all settings below")
	f.StringVar(&config.Listen, "listen", config.Listen, "`ADDRESS` (host:port) to listen on")
	f.StringVar(&config.Store, "store", config.Store, "`URL` of the store")
	f.BoolVar(&config.Insecure, "insecure", false, "allow clients on other machines without tokens or certificates")
	f.BoolVar(&config.Demo, "demo", false, "drive traffic of a demonstration, in memory unless --store is given")
	f.StringVar(&config.TLS.Cert, "tls-cert", "", "`FILE` with the certificate, in PEM")
	f.StringVar(&config.TLS.Key, "tls-key", "", "`FILE` with the key of the certificate, in PEM")
	f.StringVar(&config.TLS.ClientCA, "tls-client-ca", "", "require client certificates of the authority in `FILE`")
	f.StringVar(&config.Log.Format, "log-format", config.Log.Format, "`FORMAT` of the log: text or json")
	f.StringVar(&config.Log.Level, "log-level", config.Log.Level, "lowest `LEVEL` that is logged: debug, info, warn or error")
	f.DurationVar(&config.Grace, "grace", config.Grace, "after a signal to stop, give requests `DURATION` to finish")
	f.DurationVar(&config.ReadyDelay, "ready-delay", 0, "after a signal to stop, let /readyz fail for `DURATION` before requests are rejected")
	c.RunE = func(c *cobra.Command, _ []string) error {
		given := settled(c.Flags())
		if err := config.merge(c.Flags(), given, &file); err != nil {
			return &exit.Error{Code: exit.Usage, Err: err}
		}
		current := config
		again := func() (Config, error) {
			err := config.merge(c.Flags(), given, &file)
			return config, err
		}
		return current.run(c.Context(), version, c.OutOrStdout(), c.ErrOrStderr(), again)
	}
	return c
}

// settled returns the values of flags, and for absent flags those of the environment
// (SEMA_LISTEN, …).
func settled(flags *pflag.FlagSet) map[string]string {
	given := map[string]string{}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			given[f.Name] = f.Value.String()
		} else if value := os.Getenv("SEMA_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))); value != "" {
			given[f.Name] = value
		}
	})
	return given
}

// merge reads the file, and then applies flags and environment, which take precedence.
func (c *Config) merge(flags *pflag.FlagSet, given map[string]string, file *string) error {
	if named, ok := given["config"]; ok {
		*file = named
	}
	*c = defaults()
	if *file != "" {
		if err := c.read(*file); err != nil {
			return err
		}
	}
	for name, value := range given {
		if err := flags.Set(name, value); err != nil {
			return fmt.Errorf("%s %q: %w", name, value, err)
		}
	}
	if c.Demo {
		if _, ok := given["store"]; !ok {
			c.Store = demoStore
		}
		c.Semaphores = append(c.Semaphores, demoDeclarations()...)
	}
	return c.check()
}

// ballast is the size of a heap block that is never written to: it uses address space, not
// memory. It makes the garbage collector run less often. Without it the live heap is so small
// that the collector runs every few megabytes, which takes a twentieth of the time under load.
const ballast = 12 << 20

// run serves until a signal to stop.
func (c Config) run(ctx context.Context, version string, out, logs io.Writer, again func() (Config, error)) error {
	weight := make([]byte, ballast)
	defer runtime.KeepAlive(&weight)
	signal.Ignore(syscall.SIGPIPE) // a closed log pipe must not end the server
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	logger, err := c.logger(logs)
	if err != nil {
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	slog.SetDefault(logger)
	secure, err := c.tls() // before the server is announced
	if err != nil {
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	opened, err := c.open(ctx)
	if err != nil {
		return err
	}
	s, err := server.New(opened, server.Options{
		Declared: c.Semaphores, Tokens: c.Tokens, Logger: logger, Version: version, Hosts: c.Hosts, Limits: c.limits(),
		Backend: c.backend(), History: c.historyDirectory(), Documents: siteHandler, Demo: c.Demo,
	})
	if err != nil {
		opened.Close()
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	listener, err := c.listen()
	if err != nil {
		_ = s.Close(context.WithoutCancel(ctx))
		return err
	}
	reloading := &reloader{current: c, read: again, server: s, logger: logger}
	if secure != nil {
		reloading.secure = newSecuring(secure)
		secure = reloading.secure.config()
	}
	go reloading.run(ctx, hangup)
	c.announce(out, version, listener.Addr(), opened)
	if c.Demo {
		demo, end := context.WithCancel(ctx) // it ends before the server, which waits for requests
		defer end()
		go func() {
			if err := demonstrate(demo, listener.Addr()); err != nil {
				logger.Error("the demonstration has not started", "error", err)
			}
		}()
	}
	return c.serve(ctx, stop, s, listener, secure, logger)
}

// open opens the store. It creates the directory of a SQLite file.
func (c Config) open(ctx context.Context) (fleet.Store, error) {
	u, err := store.Parse(c.Store)
	if err != nil {
		return nil, err
	}
	if path := u.File(); path != "" {
		directory := filepath.Dir(path)
		if err := os.MkdirAll(directory, 0o700); err != nil {
			return nil, fmt.Errorf("create the directory of %s (--store names another store): %w", u, err)
		}
		if path == stateFile() { // the default, not a file that the user named
			if err := checkOwner(directory); err != nil {
				return nil, &exit.Error{Code: exit.Usage, Err: err}
			}
		}
	}
	return dial.Open(ctx, u, dial.Creating)
}

// backend returns the name of the store in metrics: the scheme of its URL.
func (c Config) backend() string {
	scheme, _, _ := strings.Cut(c.Store, ":")
	return scheme
}

func (c Config) logger(to io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Log.Level)); err != nil {
		return nil, fmt.Errorf("log level %q: want debug, info, warn or error", c.Log.Level)
	}
	options := &slog.HandlerOptions{Level: level}
	if c.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(to, options)), nil
	}
	return slog.New(slog.NewTextHandler(to, options)), nil
}

// listen listens only on IPv4 for 0.0.0.0: package net would use all addresses of both
// families.
func (c Config) listen() (net.Listener, error) {
	network := "tcp"
	if host, _, _ := net.SplitHostPort(c.Listen); host == "0.0.0.0" {
		network = "tcp4"
	}
	listener, err := net.Listen(network, c.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, exit.Errorf(exit.Unavailable, "%w", err).With("stop the other server there, or choose another address with --listen")
	}
	if err != nil {
		return nil, &exit.Error{Code: exit.Unavailable, Err: err}
	}
	return listener, nil
}

// announce prints the addresses of the server, and a request to try.
func (c Config) announce(out io.Writer, version string, at net.Addr, opened fleet.Store) {
	scheme := "http"
	if c.TLS.Cert != "" {
		scheme = "https"
	}
	url := scheme + "://" + at.String()
	name := "the store"
	if _, ok := opened.(*memstore.Store); ok {
		name = "a memory store, which ends with the server"
	} else if named, ok := opened.(fmt.Stringer); ok {
		name = named.String() // without a password
	} else if u, err := store.Parse(c.Store); err == nil {
		name = u.String()
	}
	fmt.Fprintf(out, "sema %s, permits in %s\n  API          %s/v1/semaphores\n  description  %s/openapi.json\n  dashboard    %s/ui/\n  documents    %s/docs/\n", version, name, url, url, url, url)
	if _, err := fs.Stat(playground.Built(), playground.Program); err == nil {
		fmt.Fprintf(out, "  playground   %s/play/\n", url)
	}
	command := "curl"
	if c.TLS.ClientCA != "" {
		command += " --cacert ca.crt --cert client.crt --key client.key"
	}
	if len(c.Tokens) > 0 {
		command += ` -H "Authorization: Bearer $SEMA_TOKEN"`
	}
	if c.Demo {
		fmt.Fprintf(out, "  demo         the server drives traffic of its own; nothing of it is real\n")
	}
	fmt.Fprintf(out, "  try          %s -X POST '%s/v1/semaphores/demo/leases?capacity=3'\n", command, url)
}

// serve serves until a signal, and then stops gracefully. After stop was called, a second signal
// ends the process at once.
func (c Config) serve(ctx context.Context, stop func(), s *server.Server, listener net.Listener, secure *tls.Config, logger *slog.Logger) error {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	h := &http.Server{
		Handler: s, Protocols: protocols, ConnContext: server.ConnContext, ErrorLog: s.ErrorLog(),
		ReadHeaderTimeout: 20 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		HTTP2:     &http.HTTP2Config{SendPingTimeout: 15 * time.Second}, // detects clients that have disappeared
		TLSConfig: secure,
	}
	h.RegisterOnShutdown(s.EndStreams)
	ended := make(chan error, 1)
	go func() {
		if secure == nil {
			ended <- h.Serve(listener)
			return
		}
		ended <- h.ServeTLS(listener, "", "")
	}()
	select {
	case err := <-ended:
		return errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	case <-ctx.Done():
		stop()
	}
	logger.Info("stopping", "grace", c.Grace)
	return c.leave(context.WithoutCancel(ctx), s, h)
}

// leave stops the server gracefully: /readyz fails, requests may finish, then the server is
// closed. Leases stay valid: while requests still wait, leases can be renewed and released here.
func (c Config) leave(ctx context.Context, s *server.Server, h *http.Server) error {
	s.Unready()
	time.Sleep(c.ReadyDelay)
	s.Leave()
	s.EndStreams()
	finishing, cancel := context.WithTimeout(ctx, c.Grace)
	defer cancel()
	for !s.Resting() && finishing.Err() == nil {
		select {
		case <-finishing.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	err := h.Shutdown(finishing)
	closed := s.Close(ctx) // ends requests that still wait
	if errors.Is(err, context.DeadlineExceeded) {
		last, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err = h.Shutdown(last); err != nil {
			err = h.Close()
		}
	}
	return errors.Join(err, closed)
}

// tls returns the TLS configuration, nil if TLS is not configured.
func (c Config) tls() (*tls.Config, error) {
	if c.TLS.Cert == "" {
		return nil, nil
	}
	certificate, err := tls.LoadX509KeyPair(c.TLS.Cert, c.TLS.Key)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"}}
	if c.TLS.ClientCA == "" {
		return config, nil
	}
	raw, err := os.ReadFile(c.TLS.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("tls.client_ca: %w", err)
	}
	config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !config.ClientCAs.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("tls.client_ca: no certificate in %s", c.TLS.ClientCA)
	}
	return config, nil
}
