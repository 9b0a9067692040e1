package serve

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestConfiguration_IsDocumented compares docs/configuration.md with the keys of the file, the
// flags and their defaults, and the variables that programs read or set.
func TestConfiguration_IsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := func(pattern string) map[string]bool {
		found := make(map[string]bool)
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			found[m[1]] = true
		}
		return found
	}
	t.Run("keys of the file", func(t *testing.T) {
		t.Parallel()
		keys := make(map[string]bool)
		collectKeys(keys, "", reflect.TypeFor[Config]())
		same(t, documented("(?m)^\\| `([a-z_.]+)`"), keys)
	})
	t.Run("flags", func(t *testing.T) {
		t.Parallel()
		flags := make(map[string]bool)
		Command("test").Flags().VisitAll(func(f *pflag.Flag) {
			flags[f.Name] = true
			row := regexp.MustCompile("(?m)^\\|.*`--" + f.Name + "` \\| `(\\w+)` \\| ([^|]+) \\|").FindStringSubmatch(string(text))
			if row == nil {
				return // reported below
			}
			if want := "SEMA_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")); row[1] != want {
				t.Errorf("--%s: the variable is %s, the page has %s", f.Name, want, row[1])
			}
			if shown := strings.Trim(row[2], "`"); f.DefValue != "" && shown != f.DefValue && f.Name != "store" {
				t.Errorf("--%s: the default is %s, the page has %s", f.Name, f.DefValue, shown)
			}
		})
		same(t, documented("(?m)^\\|[^|]*\\| `--([a-z-]+)` \\|"), flags)
	})
	t.Run("variables", func(t *testing.T) {
		t.Parallel()
		variables := readVariables(t)
		Command("test").Flags().VisitAll(func(f *pflag.Flag) {
			variables["SEMA_"+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))] = true
		})
		same(t, documented("`(SEMA_[A-Z_]+)`"), variables)
	})
}

func same(t *testing.T, documented, want map[string]bool) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !documented[name] {
			t.Errorf("docs/configuration.md lacks %s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(documented)) {
		if !want[name] {
			t.Errorf("docs/configuration.md has %s, the code has not", name)
		}
	}
}

// collectKeys adds the keys that a type has in YAML, with dots between levels.
func collectKeys(keys map[string]bool, prefix string, typ reflect.Type) {
	for i := range typ.NumField() {
		key := typ.Field(i).Tag.Get("yaml")
		if key == "-" {
			continue
		}
		inner := typ.Field(i).Type
		for inner.Kind() == reflect.Slice || inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct {
			collectKeys(keys, prefix+key+".", inner)
		} else {
			keys[prefix+key] = true
		}
	}
}

// readVariables returns the variables that the code outside of tests names in literals.
func readVariables(t *testing.T) map[string]bool {
	t.Helper()
	found := make(map[string]bool)
	for _, pattern := range []string{"*.go", "x/remotestore/*.go", "cmd/sema/internal/*/*.go"} {
		files, err := filepath.Glob(filepath.Join("../../../..", pattern))
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") || strings.Contains(file, "commandtest") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`"(SEMA_[A-Z_]*[A-Z])["=]`).FindAllSubmatch(text, -1) {
				found[string(m[1])] = true
			}
		}
	}
	return found
}
