package serve

import (
	"os"
	"path/filepath"
	"testing"
)

// TestConfig_ErrorsNameLineAndValue checks that errors of a file name the line and what to write,
// and no types of Go.
func TestConfig_ErrorsNameLineAndValue(t *testing.T) {
	t.Parallel()
	const further = " in a further YAML document, which may only add tokens and semaphores; move it to the top of the file"
	for text, want := range map[string]string{
		"listen: a:1\nlisen: b:1\n":                         `line 2: unknown key "lisen"`,
		"limits:\n  wating: 3\n":                            `line 2: unknown key "wating"`,
		"semaphores:\n- {name: a, capacity: 3, ttl: 5}\n":   `line 2: "5": want a duration with a unit, such as 500ms, 15s or 2h`,
		"semaphores:\n- {name: a, capacity: many}\n":        `line 2: "many": want a number`,
		"semaphores: {name: a}\n":                           `line 1: want a list`,
		"insecure: maybe\n":                                 `line 1: "maybe": want true or false`,
		"limits: 3\n":                                       `line 1: "3": want keys and values`,
		"listen: [a]\ngrace: soon\n":                        `line 1: want a text; line 2: "soon": want a duration with a unit, such as 500ms, 15s or 2h`,
		"tokens: []\n---\nlisten: a:1\n":                    `line 3: unknown key "listen"` + further,
		"listen: [\n":                                       `line 1: did not find expected node content`,
		"tokens: []\n---\nsemaphores:\n- {capacity: few}\n": `line 4: "few": want a number`,
	} {
		file := filepath.Join(t.TempDir(), "sema.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c := defaults()
		err := c.read(file)
		if want = "configuration " + file + ": " + want; err == nil || err.Error() != want {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
}
