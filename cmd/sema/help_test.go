package main

import (
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestHelp_HasPurposeAndExample checks that the help of each command has a description and an
// example.
func TestHelp_HasPurposeAndExample(t *testing.T) {
	t.Parallel()
	s := onHost(t)
	root := s.must("--help")
	names := regexp.MustCompile(`(?m)^  ([a-z-]+) +[A-Z]`).FindAllStringSubmatch(root[strings.Index(root, "Run a command"):], -1)
	if len(names) < 21 {
		t.Fatalf("commands %v in\n%s", names, root)
	}
	for _, match := range names {
		name := match[1]
		help := s.must(name, "--help")
		if !strings.Contains(help, "Examples:") {
			t.Errorf("%s: no example in\n%s", name, help)
		}
		for line := range strings.SplitSeq(help, "\n") {
			if len([]rune(line)) > 90 && !strings.Contains(line, "--") {
				t.Errorf("%s: a long line: %s", name, line)
			}
			if name == "serve" {
				continue // its flags have the names of the configuration file
			}
			if strings.Count(line, "(default") > 1 || regexp.MustCompile(`-1ns|m0s|default 0|default ""| (int|string|strings|duration) {2}`).MatchString(line) {
				t.Errorf("%s: not plain: %s", name, line)
			}
		}
	}
	if bare := s.run(); bare.code != 0 || bare.out != root {
		t.Errorf("without arguments: exit code %d, output\n%s", bare.code, bare.out)
	}
}

func TestVersion_Output(t *testing.T) {
	t.Parallel()
	s := onHost(t)
	if got := s.must("version"); !strings.HasPrefix(got, "sema ") || !strings.Contains(got, "protocol 1") {
		t.Errorf("output %q", got)
	}
	if got := decode[map[string]any](t, s.must("version", "-o", "json")); got["protocol"] != 1.0 || got["version"] == "" {
		t.Errorf("output %v", got)
	}
}

func TestCompletion_Shells(t *testing.T) {
	t.Parallel()
	s := onHost(t)
	for _, name := range []string{"bash", "zsh", "fish", "powershell"} {
		script := s.must("completion", name)
		if !strings.Contains(script, "sema") {
			t.Errorf("%s: %s", name, script)
		}
		if path, err := exec.LookPath(name); err == nil && name != "powershell" {
			check := exec.Command(path, "-n")
			check.Stdin = strings.NewReader(script)
			if output, err := check.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", name, err, output)
			}
		}
	}
	s.must("run", "team/a", "-n", "1", "--", "true")
	s.must("run", "other", "-n", "1", "--", "true")
	if got := s.must("__complete", "show", "te"); !strings.HasPrefix(got, "team/a\n:") {
		t.Errorf("names are %q", got)
	}
	if got := s.must("__complete", "run", "--devices", ""); !strings.Contains(got, "cuda\nhip\nrocr\nze") {
		t.Errorf("kinds of devices: %s", got)
	}
	if got := s.must("__complete", "ls", "-o", ""); !strings.Contains(got, "json\ntable\nwide") {
		t.Errorf("formats are %q", got)
	}
}

// sources lists the files of the program, without tests and test packages.
func sources(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == "commandtest":
			return fs.SkipDir
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			files = append(files, filepath.ToSlash(path))
		}
		return nil
	})
	if err != nil || len(files) < 40 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	return files
}
