// Package devices restricts a command to some of the devices of a machine. It sets the
// environment variables that the runtimes of GPUs read. The number of a permit is an index into
// the devices that this process may use: if such a variable is set already (the outer mask),
// number 0 is the first device in it.
package devices

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/printable"
)

// A Kind is a kind of devices, as --devices names it.
type Kind struct {
	Name     string
	Variable string // contains the list of visible devices, and is set for the command

	alias string // read if Variable is not set
	under string // variable with the list that the indices of Variable refer to
	above string // variable whose indices refer to this list, which must not be set
	named func(entry string) bool
}

// Kinds lists all kinds.
var Kinds = []Kind{
	{Name: "cuda", Variable: "CUDA_VISIBLE_DEVICES", named: isUUID},
	{Name: "hip", Variable: "HIP_VISIBLE_DEVICES", alias: "CUDA_VISIBLE_DEVICES", under: "ROCR_VISIBLE_DEVICES", named: isUUID},
	{Name: "rocr", Variable: "ROCR_VISIBLE_DEVICES", above: "HIP_VISIBLE_DEVICES", named: isUUID},
	{Name: "ze", Variable: "ZE_AFFINITY_MASK", named: isTile},
}

// isUUID reports whether an entry names a device instead of an index: GPU-8932f937-…,
// MIG-GPU-…/1/0. The names may be abbreviated.
func isUUID(entry string) bool {
	return strings.HasPrefix(entry, "GPU-") || strings.HasPrefix(entry, "MIG-")
}

// isTile reports whether an entry is a part of a device of Level Zero: 0.1.
func isTile(entry string) bool {
	device, tile, ok := strings.Cut(entry, ".")
	_, isDevice := indexOf(device)
	_, isTile := indexOf(tile)
	return ok && isDevice && isTile
}

func indexOf(entry string) (index int, ok bool) {
	n, err := strconv.ParseUint(entry, 10, 31)
	return int(n), err == nil
}

// Names returns the names of all kinds, as text.
func Names() string {
	var names []string
	for _, k := range Kinds {
		names = append(names, k.Name)
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// Find returns the kind with a name.
func Find(name string) (Kind, error) {
	i := slices.IndexFunc(Kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, exit.Misuse("--devices %s: want %s", printable.Arg(name), Names())
	}
	return Kinds[i], nil
}

// A Mask is the list of devices that this process may use.
type Mask struct {
	kind    Kind
	from    string   // assignment that the list was read from; "": no variable is set, all devices are visible
	entries []string // as in the variable; without meaning if from is ""
}

// Outer returns the mask in an environment, which lookup reads.
func (k Kind) Outer(lookup func(string) (string, bool)) (Mask, error) {
	if k.above != "" {
		if _, set := lookup(k.above); set {
			return Mask{}, exit.Misuse("%s is set: its indices would refer to other devices if %s changed", k.above, k.Variable).
				With("use --devices hip, or unset %s", k.above)
		}
	}
	below := -1 // number of devices that indices can refer to; -1: unknown
	mask := Mask{kind: k}
	if value, set := lookup(k.under); set && k.under != "" {
		rocr, err := k.read(k.under, value, -1)
		if err != nil {
			return Mask{}, err
		}
		below = len(rocr)
		mask.from = k.under + "=" + value
		for i := range rocr {
			mask.entries = append(mask.entries, strconv.Itoa(i))
		}
	}
	for _, variable := range []string{k.Variable, k.alias} {
		value, set := lookup(variable)
		if variable == "" || !set {
			continue
		}
		entries, err := k.read(variable, value, below)
		return Mask{k, variable + "=" + value, entries}, err
	}
	return mask, nil
}

// read returns the entries of a list. Like the runtimes, it ends the list at the first entry that
// is neither an index nor a name, such as -1. Indices must be less than below, if that is known.
func (k Kind) read(variable, value string, below int) (entries []string, err error) {
	for entry := range strings.SplitSeq(value, ",") {
		entry = strings.TrimSpace(entry)
		index, isIndex := indexOf(entry)
		if isIndex {
			entry = strconv.Itoa(index)
		}
		if !isIndex && !k.named(entry) || isIndex && below >= 0 && index >= below {
			break
		}
		if i := slices.IndexFunc(entries, func(other string) bool { return overlap(other, entry) }); i >= 0 {
			return nil, exit.Misuse("%s=%s names device %s twice%s, so two permits would use it", variable, printable.Line(value), entry, as(entries[i], entry)).
				With("name each device once in %s", variable)
		}
		entries = append(entries, entry)
	}
	if len(entries) == 0 {
		return nil, exit.Misuse("%s=%s hides all devices", variable, printable.Line(value)).
			With("set it to a list of devices, such as 0,1, or unset it to use all")
	}
	return entries, nil
}

// overlap reports whether two entries name the same device, or a device and a part of it.
func overlap(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	rest, found := strings.CutPrefix(b, a)
	// GPU-89 may be short for GPU-8932f937-…. Names of MIG devices end in indices: MIG-…/1/1 is not MIG-…/1/12.
	return found && (rest == "" || rest[0] == '.' || strings.HasPrefix(a, "GPU-"))
}

// as returns how a device was named before, if that differs.
func as(other, entry string) string {
	if other == entry {
		return ""
	}
	return " (as " + other + ")"
}

// Check fails if the mask has fewer devices than a semaphore has numbers.
func (m Mask) Check(semaphore string, capacity int64) error {
	if m.from == "" || int64(len(m.entries)) >= capacity {
		return nil
	}
	return m.tooShort(fmt.Sprintf("%q has the numbers 0 to %d", semaphore, capacity-1))
}

func (m Mask) tooShort(facts string) error {
	return exit.Misuse("%s, but %s lists only %d: a number would have no device", facts, printable.Line(m.from), len(m.entries)).
		With("use a semaphore of its own for these devices, with -n %d, or add the missing devices", len(m.entries))
}

// Environment returns the variable for a command that uses the devices with some numbers, as in
// [os/exec.Cmd].
func (m Mask) Environment(slots []int64) (string, error) {
	selected := make([]string, len(slots))
	for i, n := range slots {
		switch {
		case m.from == "":
			selected[i] = strconv.FormatInt(n, 10)
		case n < int64(len(m.entries)):
			selected[i] = m.entries[n]
		default: // the capacity was raised during the wait
			return "", m.tooShort(fmt.Sprintf("the permit has the number %d", n))
		}
	}
	return m.kind.Variable + "=" + strings.Join(selected, ","), nil
}
