package serve

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// deployed returns the content of a file for operators.
func deployed(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(deploy, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// documents decodes all YAML documents of a file.
func documents(t *testing.T, name string) (all []map[string]any) {
	t.Helper()
	for decoder := yaml.NewDecoder(bytes.NewReader([]byte(deployed(t, name)))); ; {
		var one map[string]any
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, one)
	}
}

// at follows keys and indexes in decoded YAML.
func at(value any, path ...any) any {
	for _, step := range path {
		switch in := value.(type) {
		case map[string]any:
			key, _ := step.(string)
			value = in[key]
		case []any:
			i, _ := step.(int)
			if i >= len(in) {
				return nil
			}
			value = in[i]
		default:
			return nil
		}
	}
	return value
}

// pinned matches an image with a version: a moving tag would change what runs.
var pinned = regexp.MustCompile(`^[a-z./-]+:v?\d+\.\d+\.\d+[a-z0-9.-]*$`)

func TestDeploy_ImagesArePinned(t *testing.T) {
	t.Parallel()
	var images []string
	for _, from := range regexp.MustCompile(`(?m)^FROM (?:--platform=\S+ )?(\S+)`).FindAllStringSubmatch(deployed(t, "Dockerfile"), -1) {
		images = append(images, from[1])
	}
	for _, service := range at(documents(t, "compose.yaml")[0], "services").(map[string]any) {
		image, _ := at(service, "image").(string)
		images = append(images, image)
	}
	for _, object := range documents(t, "kubernetes.yaml") {
		if image, ok := at(object, "spec", "template", "spec", "containers", 0, "image").(string); ok {
			images = append(images, image)
		}
	}
	if len(images) != 5 {
		t.Errorf("images %q, want 5", images)
	}
	for _, image := range images {
		if image != "scratch" && !pinned.MatchString(image) {
			t.Errorf("image %q: want a version", image)
		}
	}
}

func TestDeploy_ContainersAreConfined(t *testing.T) {
	t.Parallel()
	pod := map[string]any{}
	for _, object := range documents(t, "kubernetes.yaml") {
		if object["kind"] == "Deployment" {
			pod = at(object, "spec", "template", "spec").(map[string]any)
		}
	}
	container := at(pod, "containers", 0)
	service := at(documents(t, "compose.yaml")[0], "services", "sema")
	for what, got := range map[string]any{
		"seccomp RuntimeDefault":    at(pod, "securityContext", "seccompProfile", "type") == "RuntimeDefault",
		"non-root":                  at(pod, "securityContext", "runAsNonRoot"),
		"numeric user":              at(pod, "securityContext", "runAsUser") == 65532,
		"no account token":          at(pod, "automountServiceAccountToken") == false,
		"no escalation":             at(container, "securityContext", "allowPrivilegeEscalation") == false,
		"read-only root":            at(container, "securityContext", "readOnlyRootFilesystem"),
		"no capabilities":           at(container, "securityContext", "capabilities", "drop", 0) == "ALL",
		"memory limit":              at(container, "resources", "limits", "memory") == "1Gi",
		"compose read-only root":    at(service, "read_only"),
		"compose no capabilities":   at(service, "cap_drop", 0) == "ALL",
		"compose no escalation":     at(service, "security_opt", 0) == "no-new-privileges:true",
		"compose memory limit":      at(service, "mem_limit") == "1g",
		"image: non-root":           strings.Contains(deployed(t, "Dockerfile"), "\nUSER 65532:65532\n"),
		"image: HEALTHCHECK":        strings.Contains(deployed(t, "Dockerfile"), "\nHEALTHCHECK ") && strings.Contains(deployed(t, "Dockerfile"), `CMD ["sema", "serve", "health"]`),
		"image: memory below 1 GiB": strings.Contains(deployed(t, "Dockerfile"), "GOMEMLIMIT=800MiB"),
	} {
		if got != true {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// TestDeploy_SecretsAreNotInConfigurations checks the URL of the store, which may contain a
// password: it comes from a Secret or the environment, and is in no file that others can read.
func TestDeploy_SecretsAreNotInConfigurations(t *testing.T) {
	t.Parallel()
	kinds := map[string]string{}
	for _, object := range documents(t, "kubernetes.yaml") {
		kind := object["kind"].(string)
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		kinds[kind] = string(text)
	}
	for kind, text := range kinds {
		if has := strings.Contains(text, "redis://"); has != (kind == "Secret") {
			t.Errorf("%s: has the store's URL: %v; kinds %v", kind, has, slices.Sorted(maps.Keys(kinds)))
		}
	}
	if !strings.Contains(kinds["Deployment"], "secretKeyRef") {
		t.Error("Deployment: SEMA_STORE does not come from the Secret")
	}
	for _, url := range regexp.MustCompile(`redis://\S+`).FindAllString(deployed(t, "compose.yaml"), -1) {
		if !strings.Contains(url, "${REDIS_PASSWORD:?") {
			t.Errorf("compose: %s: the password does not come from the environment", url)
		}
	}
}

func TestDeploy_UnitIsConfined(t *testing.T) {
	t.Parallel()
	unit := deployed(t, "sema.service")
	for _, line := range []string{
		"DynamicUser=yes", "NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet=", "SystemCallFilter=@system-service",
		"MemoryMax=1G", "Environment=GOMEMLIMIT=800MiB", "StateDirectory=sema", "EnvironmentFile=-/etc/sema/secrets.env",
		"# LoadCredential=tls.key:/etc/sema/tls.key", "# Environment=SEMA_TLS_CERT=%d/tls.crt SEMA_TLS_KEY=%d/tls.key",
	} {
		if !slices.Contains(strings.Split(unit, "\n"), line) {
			t.Errorf("the unit has no line %q", line)
		}
	}
}
