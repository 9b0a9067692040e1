package serve

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Texts of the YAML library, which names types of Go.
var (
	unknownKey = regexp.MustCompile(`^(line \d+): field (.+) not found in type .+$`)
	wrongValue = regexp.MustCompile("^(line \\d+): cannot unmarshal !!\\w+(?: `(.*)`)? into (.+)$")
)

// wanted describes the values of a type of the configuration.
func wanted(goType string) string {
	switch {
	case goType == "time.Duration":
		return "a duration with a unit, such as 500ms, 15s or 2h"
	case goType == "bool":
		return "true or false"
	case goType == "string":
		return "a text"
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	case strings.HasPrefix(goType, "int"), strings.HasPrefix(goType, "float"):
		return "a number"
	}
	return "keys and values"
}

// explainYAML converts an error of the YAML library to one for users. unknown describes the keys
// that are allowed.
func explainYAML(err error, unknown string) error {
	var typed *yaml.TypeError
	if !errors.As(err, &typed) {
		return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	var texts []string
	for _, text := range typed.Errors {
		if m := unknownKey.FindStringSubmatch(text); m != nil {
			text = fmt.Sprintf("%s: unknown key %q%s", m[1], m[2], unknown)
		} else if m := wrongValue.FindStringSubmatch(text); m != nil {
			text = fmt.Sprintf("%s: want %s", m[1], wanted(m[3]))
			if m[2] != "" {
				text = fmt.Sprintf("%s: %q: want %s", m[1], m[2], wanted(m[3]))
			}
		}
		texts = append(texts, text)
	}
	return errors.New(strings.Join(texts, "; "))
}
