package devices

import (
	"strings"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/exit"
)

// TestMask_Environment checks the variable of the command for outer masks.
func TestMask_Environment(t *testing.T) {
	t.Parallel()
	const uuids = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,MIG-GPU-5/1/0,GPU-9"
	for name, c := range map[string]struct {
		kind  string
		outer []string
		slots []int64
		want  string
	}{
		"no mask":                  {"cuda", nil, []int64{1, 3}, "CUDA_VISIBLE_DEVICES=1,3"},
		"indices":                  {"cuda", []string{"CUDA_VISIBLE_DEVICES=4,5,6,7"}, []int64{1, 3}, "CUDA_VISIBLE_DEVICES=5,7"},
		"another order":            {"cuda", []string{"CUDA_VISIBLE_DEVICES=7,6,5,4"}, []int64{0, 2}, "CUDA_VISIBLE_DEVICES=7,5"},
		"spaces and zeros":         {"cuda", []string{"CUDA_VISIBLE_DEVICES= 4, 05 "}, []int64{0, 1}, "CUDA_VISIBLE_DEVICES=4,5"},
		"names":                    {"cuda", []string{"CUDA_VISIBLE_DEVICES=" + uuids}, []int64{0, 1, 2}, "CUDA_VISIBLE_DEVICES=" + uuids},
		"indices of MIG":           {"cuda", []string{"CUDA_VISIBLE_DEVICES=MIG-GPU-5/1/1,MIG-GPU-5/1/12,1,12"}, []int64{0, 1}, "CUDA_VISIBLE_DEVICES=MIG-GPU-5/1/1,MIG-GPU-5/1/12"},
		"before an invalid entry":  {"cuda", []string{"CUDA_VISIBLE_DEVICES=4,5,-1,6"}, []int64{0, 1}, "CUDA_VISIBLE_DEVICES=4,5"},
		"other kinds are ignored":  {"cuda", []string{"HIP_VISIBLE_DEVICES=4", "ROCR_VISIBLE_DEVICES=4"}, []int64{2}, "CUDA_VISIBLE_DEVICES=2"},
		"hip":                      {"hip", []string{"HIP_VISIBLE_DEVICES=2,3", "CUDA_VISIBLE_DEVICES=0,1"}, []int64{1}, "HIP_VISIBLE_DEVICES=3"},
		"hip reads CUDA's":         {"hip", []string{"CUDA_VISIBLE_DEVICES=2,3"}, []int64{1}, "HIP_VISIBLE_DEVICES=3"},
		"hip below rocr":           {"hip", []string{"ROCR_VISIBLE_DEVICES=4,GPU-ab,6"}, []int64{1, 2}, "HIP_VISIBLE_DEVICES=1,2"},
		"hip and rocr":             {"hip", []string{"ROCR_VISIBLE_DEVICES=4,5,6", "HIP_VISIBLE_DEVICES=2,0"}, []int64{0, 1}, "HIP_VISIBLE_DEVICES=2,0"},
		"rocr":                     {"rocr", []string{"ROCR_VISIBLE_DEVICES=4,GPU-ab", "CUDA_VISIBLE_DEVICES=0"}, []int64{1}, "ROCR_VISIBLE_DEVICES=GPU-ab"},
		"Level Zero":               {"ze", []string{"ZE_AFFINITY_MASK=0.1,1.0,2"}, []int64{0, 2}, "ZE_AFFINITY_MASK=0.1,2"},
		"Level Zero without masks": {"ze", nil, []int64{3}, "ZE_AFFINITY_MASK=3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := outer(t, c.kind, c.outer)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Check("gpu", c.slots[len(c.slots)-1]+1); err != nil {
				t.Error(err)
			}
			if got, err := m.Environment(c.slots); got != c.want || err != nil {
				t.Errorf("%q, %v, want %q", got, err, c.want)
			}
		})
	}
}

// TestMask_Rejected checks the errors of masks that cannot be used.
func TestMask_Rejected(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind       string
		outer      []string
		want, hint string
	}{
		"empty":                   {"cuda", []string{"CUDA_VISIBLE_DEVICES="}, "CUDA_VISIBLE_DEVICES= hides all devices", "unset it"},
		"all hidden":              {"cuda", []string{"CUDA_VISIBLE_DEVICES=-1"}, "CUDA_VISIBLE_DEVICES=-1 hides all", "unset it"},
		"not a list":              {"cuda", []string{"CUDA_VISIBLE_DEVICES=NoDevFiles"}, "hides all", "unset it"},
		"twice":                   {"cuda", []string{"CUDA_VISIBLE_DEVICES=1,2,01"}, "names device 1 twice", "each device once"},
		"a name twice":            {"rocr", []string{"ROCR_VISIBLE_DEVICES=GPU-a,GPU-a"}, "names device GPU-a twice", "each device once"},
		"short and long name":     {"cuda", []string{"CUDA_VISIBLE_DEVICES=GPU-8932f937,GPU-89"}, "names device GPU-89 twice (as GPU-8932f937)", "each device once"},
		"a device and its tile":   {"ze", []string{"ZE_AFFINITY_MASK=1.0,1"}, "names device 1 twice (as 1.0)", "each device once"},
		"too few":                 {"cuda", []string{"CUDA_VISIBLE_DEVICES=4,5"}, `"gpu" has the numbers 0 to 3, but CUDA_VISIBLE_DEVICES=4,5 lists only 2`, "-n 2"},
		"too few before -1":       {"cuda", []string{"CUDA_VISIBLE_DEVICES=1,2,3,-1,4"}, "lists only 3", "-n 3"},
		"too few below":           {"hip", []string{"ROCR_VISIBLE_DEVICES=4,5,6"}, "ROCR_VISIBLE_DEVICES=4,5,6 lists only 3", "-n 3"},
		"an index below is wrong": {"hip", []string{"ROCR_VISIBLE_DEVICES=4,5", "HIP_VISIBLE_DEVICES=0,2,1"}, "lists only 1", "-n 1"},
		"empty below":             {"hip", []string{"ROCR_VISIBLE_DEVICES=", "HIP_VISIBLE_DEVICES=0"}, "ROCR_VISIBLE_DEVICES= hides all", "unset it"},
		"tiles of CUDA":           {"cuda", []string{"CUDA_VISIBLE_DEVICES=0.1"}, "hides all", "unset it"},
		"names of Level Zero":     {"ze", []string{"ZE_AFFINITY_MASK=GPU-1"}, "hides all", "unset it"},
		"rocr below hip":          {"rocr", []string{"HIP_VISIBLE_DEVICES=0"}, "HIP_VISIBLE_DEVICES is set", "--devices hip"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := outer(t, c.kind, c.outer)
			if err == nil {
				err = m.Check("gpu", 4)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(sema.Hint(err), c.hint) || exit.Code(err) != exit.Usage {
				t.Errorf("%v, hint %q, code %d", err, sema.Hint(err), exit.Code(err))
			}
		})
	}
	m, _ := outer(t, "cuda", []string{"CUDA_VISIBLE_DEVICES=4,5"})
	if _, err := m.Environment([]int64{1, 2}); err == nil || !strings.Contains(err.Error(), "the permit has the number 2") {
		t.Errorf("%v", err)
	}
	if _, err := Find("gpu"); err == nil || !strings.Contains(err.Error(), "--devices gpu: want cuda, hip, rocr or ze") {
		t.Errorf("%v", err)
	}
}

// outer returns the mask of an environment.
func outer(t *testing.T, kind string, environment []string) (Mask, error) {
	t.Helper()
	k, err := Find(kind)
	if err != nil {
		t.Fatal(err)
	}
	return k.Outer(func(name string) (string, bool) {
		for _, entry := range environment {
			if value, found := strings.CutPrefix(entry, name+"="); found {
				return value, true
			}
		}
		return "", false
	})
}
