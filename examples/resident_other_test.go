//go:build !linux

package examples_test

import "os"

// maxResident returns false: other systems measure it in other units, or not at all.
func maxResident(*os.ProcessState) (bytes int64, ok bool) { return 0, false }
