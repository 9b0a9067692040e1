package serve

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v3"
)

const deploy = "../../../../deploy"

// TestDeploy_FilesAreValid checks that the example files for operators can be parsed.
func TestDeploy_FilesAreValid(t *testing.T) {
	t.Parallel()
	c := defaults()
	if err := c.read(filepath.Join(deploy, "sema.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := c.check(); err != nil || len(c.Semaphores) != 3 {
		t.Errorf("%v, %d semaphores", err, len(c.Semaphores))
	}
	for _, name := range []string{"kubernetes.yaml", "compose.yaml"} {
		raw, err := os.ReadFile(filepath.Join(deploy, name))
		if err != nil {
			t.Fatal(err)
		}
		decoder := yaml.NewDecoder(bytes.NewReader(raw))
		for {
			var object struct {
				Kind string
				Data map[string]string
			}
			err := decoder.Decode(&object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if inner, ok := object.Data["sema.yaml"]; ok {
				wantConfig(t, inner)
			}
		}
	}
}

func wantConfig(t *testing.T, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sema.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := defaults()
	if err := errors.Join(c.read(file), c.check()); err != nil {
		t.Error(err)
	}
}
