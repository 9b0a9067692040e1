package remotestore

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/internal/storetest"
)

func parseText(t *testing.T, text string) (*Store, error) {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	o, err := parse(u)
	if err != nil {
		return nil, err
	}
	o.Lazy = true
	return Open(ctx, o)
}

func TestParse_URLs(t *testing.T) {
	t.Setenv(TokenVariable, "")
	for text, want := range map[string][]string{
		"sema://one":                            {"one:7362"},
		"sema://one:1":                          {"one:1"},
		"sema://one:1,two,three:3/":             {"one:1", "two:7362", "three:3"},
		"sema://[::1]":                          {"[::1]:7362"},
		"sema://[::1]:5":                        {"[::1]:5"},
		"sema://one?hosts=[::1]:1,[::2],::3":    {"one:7362", "[::1]:1", "[::2]:7362", "[::3]:7362"},
		"sema:///?hosts=one":                    {"one:7362"},
		"semas://one,two:2?token=hush":          {"one:7362", "two:2"},
		"sema://10.0.0.1:7362?token=hush%2Bhub": {"10.0.0.1:7362"},
	} {
		store, err := parseText(t, text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if !slices.Equal(store.addresses, want) || (store.tls != nil) != strings.HasPrefix(text, "semas:") {
			t.Errorf("%s: opened %v, want %v", text, store, want)
		}
		if strings.Contains(text, "hush%2Bhub") && *store.token.value.Load() != "Bearer hush+hub" {
			t.Errorf("%s: wrong token", text)
		}
	}
}

func TestOpen_RejectsURLs(t *testing.T) {
	t.Setenv(TokenVariable, "")
	authority := storetest.NewAuthority(t)
	cert, key := authority.Issue(t, "client")
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte(" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"sema:":                                    "no host",
		"sema:one":                                 "want sema://host:port",
		"sema://":                                  "no host",
		"sema://one,":                              `host ""`,
		"sema://one,:5":                            `host ":5"`,
		"sema://one,one:7362":                      "named twice",
		"sema://one/path":                          "without a path",
		"sema://one#hush":                          "without a path or fragment",
		"sema://hush@one":                          "token_file=",
		"sema://one?tocken=hush":                   `parameter "tocken" is not known; there are: ca, cert, hosts, key, open, token, token_file`,
		"sema://one?token=hush&token=hush":         `"token" is given 2 times`,
		"sema://one?open=never":                    "want check or lazy",
		"sema://one?token=":                        `"token" is empty`,
		"sema://one?token=hush%zz":                 "cannot be parsed",
		"sema://one?token=hush%0a":                 "printable ASCII",
		"sema://one?token=hush%20":                 "printable ASCII",
		"sema://one?token=hush&token_file=x":       "want one of them",
		"sema://one?token_file=/nowhere":           "token_file: open /nowhere",
		"sema://one?token_file=" + empty:           "no token in " + empty,
		"sema://one?ca=" + authority.File:          "semas://",
		"semas://one?ca=/nowhere":                  "ca: open /nowhere",
		"semas://one?ca=" + key:                    "no certificate in " + key,
		"semas://one?cert=" + cert:                 "want both or none",
		"semas://one?cert=" + key + "&key=" + cert: "cert and key: ",
		"sema://one?hosts=a/b":                     `host "a/b"`,
	} {
		_, err := fleet.Open(ctx, text)
		storetest.WantError(t, err, want)
		if !errors.Is(err, sema.ErrInvalid) {
			t.Errorf("%s: %v is not ErrInvalid", text, err)
		}
		if strings.Contains(err.Error(), "hush") {
			t.Errorf("the token is in %q", err)
		}
	}
}

// TestToken_IsNeverPrinted checks that no formatting of a store or its options contains
// the token.
func TestToken_IsNeverPrinted(t *testing.T) {
	t.Setenv(TokenVariable, "hush")
	store, err := parseText(t, "sema://one,two:1")
	if err != nil {
		t.Fatal(err)
	}
	if *store.token.value.Load() != "Bearer hush" {
		t.Error("the environment's token is not used")
	}
	o := Options{Hosts: []string{"one"}, Token: "hush"}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		for _, value := range []any{store, store.token, o, &o} {
			if text := fmt.Sprintf(verb, value); strings.Contains(text, "hush") {
				t.Errorf("the token is in %s of %T: %s", verb, value, text)
			}
		}
	}
	if got := store.String(); got != "sema service at one:7362, two:1" {
		t.Error(got)
	}
}
