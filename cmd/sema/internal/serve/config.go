package serve

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/store"
	"github.com/sema-go/sema/x/server"
)

// A Config is the configuration of a server, from a file, flags and the environment. Flags and
// the environment take precedence.
type Config struct {
	Listen   string `yaml:"listen"`
	Store    string `yaml:"store"`
	Insecure bool   `yaml:"insecure"` // listen anywhere, without tokens or certificates

	Demo bool `yaml:"-"` // drive traffic of a demonstration

	// History is the directory of the history of semaphores; default: beside the file of the embedded
	// store, and in memory only for other stores.
	History string `yaml:"history"`

	// Hosts lists further host names of a server without tokens; see [server.Options].
	Hosts []string `yaml:"hosts"`

	TLS struct {
		Cert     string `yaml:"cert"`
		Key      string `yaml:"key"`
		ClientCA string `yaml:"client_ca"` // authority whose certificates clients must have
	} `yaml:"tls"`

	Tokens     []server.Token       `yaml:"tokens"`
	Semaphores []server.Declaration `yaml:"semaphores"`

	Log struct {
		Format string `yaml:"format"` // text or json
		Level  string `yaml:"level"`  // debug, info, warn, error
	} `yaml:"log"`

	Limits struct {
		Body    int64          `yaml:"body"`
		Waiting int64          `yaml:"waiting"`
		Streams int64          `yaml:"streams"`
		Held    int64          `yaml:"held"`
		Names   int64          `yaml:"names"`
		Reads   int64          `yaml:"reads"`
		Series  int64          `yaml:"series"`
		MaxWait time.Duration  `yaml:"max_wait"`
		Idle    *time.Duration `yaml:"idle"` // of the embedded store; default 24h; 0: never
	} `yaml:"limits"`

	// After a signal to stop, /readyz fails. After ReadyDelay, new requests are rejected, and
	// waiting ones may finish within Grace.
	ReadyDelay time.Duration `yaml:"ready_delay"`
	Grace      time.Duration `yaml:"grace"`
}

// defaults returns the configuration without a file and flags.
func defaults() Config {
	c := Config{Listen: "127.0.0.1:7362", Grace: 10 * time.Second}
	if file := stateFile(); file != "" {
		c.Store = store.ForFile(file)
	}
	c.Log.Format, c.Log.Level = "text", "info"
	return c
}

// stateFile returns the path of the embedded store: in a directory of the user, never in a shared
// one. It is empty if there is none. Relative paths are ignored, as required by the XDG base
// directory specification: they would depend on the working directory.
func stateFile() string {
	directory := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(directory) {
		home, err := os.UserHomeDir()
		if err != nil || !filepath.IsAbs(home) {
			return ""
		}
		directory = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(directory, "sema", "sema.db")
}

// defaultIdle is the time after which unused semaphores of the embedded store are deleted.
const defaultIdle = 24 * time.Hour

// limits returns the limits of the server.
func (c Config) limits() server.Limits {
	l := server.Limits{
		Body: c.Limits.Body, Waiting: c.Limits.Waiting, Streams: c.Limits.Streams, Held: c.Limits.Held, Names: c.Limits.Names, Reads: c.Limits.Reads, Series: c.Limits.Series,
		MaxWait: c.Limits.MaxWait,
	}
	switch {
	case c.Limits.Idle != nil:
		l.Idle = *c.Limits.Idle
	case c.embedded():
		l.Idle = defaultIdle
	}
	return l
}

// historyDirectory returns the directory of the history; "": memory only.
func (c Config) historyDirectory() string {
	if c.History != "" {
		return c.History
	}
	if u, err := store.Parse(c.Store); err == nil && u.IsEmbedded() && u.File() != "" {
		return u.File() + ".history"
	}
	return ""
}

// embedded reports whether only this server uses the store.
func (c Config) embedded() bool {
	u, err := store.Parse(c.Store)
	return err == nil && u.IsEmbedded()
}

// read applies a file to c. Further YAML documents in the file may add tokens and semaphores, such
// as those that 'sema token' appends. A setting in one of them is an error, because it would
// silently replace an earlier one. An unknown key is an error, because a misspelt capacity would
// be ignored.
func (c *Config) read(file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	decoder.KnownFields(true)
	err = decoder.Decode(c)
	for err == nil {
		var more struct {
			Tokens     []server.Token       `yaml:"tokens"`
			Semaphores []server.Declaration `yaml:"semaphores"`
		}
		if err = decoder.Decode(&more); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("configuration %s: %w", file, explainYAML(err, " in a further YAML document, which may only add tokens and semaphores; move it to the top of the file"))
		}
		c.Tokens = append(c.Tokens, more.Tokens...)
		c.Semaphores = append(c.Semaphores, more.Semaphores...)
	}
	if !errors.Is(err, io.EOF) {
		return fmt.Errorf("configuration %s: %w", file, explainYAML(err, ""))
	}
	return nil
}

// check rejects settings that are invalid, contradictory or unsafe.
func (c Config) check() error {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("listen %q: want host:port, such as 127.0.0.1:7362, or :7362 for all addresses", c.Listen)
	}
	if err := c.checkStore(); err != nil {
		return err
	}
	if err := c.checkDemo(); err != nil {
		return err
	}
	switch {
	case (c.TLS.Cert == "") != (c.TLS.Key == ""):
		return errors.New("tls: want both cert and key, or neither")
	case c.TLS.ClientCA != "" && c.TLS.Cert == "":
		return errors.New("tls: client_ca requires cert and key")
	case c.Log.Format != "text" && c.Log.Format != "json":
		return fmt.Errorf("log format %q: want text or json", c.Log.Format)
	case c.Grace < 0 || c.ReadyDelay < 0:
		return fmt.Errorf("grace %v, ready_delay %v: want 0 or more", c.Grace, c.ReadyDelay)
	case c.Limits.Idle != nil && *c.Limits.Idle > 0 && !c.embedded():
		return errors.New("limits.idle: the store is not embedded, so other programs may use a semaphore that is idle here")
	case !isLoopback(host) && len(c.Tokens) == 0 && c.TLS.ClientCA == "" && !c.Insecure:
		return exit.Misuse("listen %q: other machines can reach that address, and any client could acquire and change everything", c.Listen).
			With("declare tokens (sema token), require client certificates (tls.client_ca), or allow it with --insecure")
	}
	return c.limits().Check()
}

func (c Config) checkStore() error {
	if c.Store == "" {
		return exit.Misuse("store: no home directory to store permits in").With("name a file with --store sqlite:///path/sema.db, or another store")
	}
	u, err := store.Parse(c.Store)
	if err == nil && u.IsHost() {
		return exit.Misuse("store %q: the processes of one machine need no server", u).With("name another store with --store, or none (and no SEMA_STORE) to use a file")
	}
	return err
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
