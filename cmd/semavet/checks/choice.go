package checks

import (
	"fmt"
	"slices"
	"strings"
)

// A choice is a flag with some values, of which the first is the default.
type choice struct {
	values []string
	set    string // "": the default
}

// Set implements [flag.Value].
func (c *choice) Set(value string) error {
	if !slices.Contains(c.values, value) {
		return fmt.Errorf("invalid value: want one of %s", strings.Join(c.values, ", "))
	}
	c.set = value
	return nil
}

// String implements [flag.Value].
func (c *choice) String() string {
	if c.set == "" && len(c.values) > 0 {
		return c.values[0]
	}
	return c.set
}

func (c *choice) is(value string) bool { return c.String() == value }
